/* Reading one head of a KV page as float32. */
#ifndef SPECRT_KV_LOAD_H
#define SPECRT_KV_LOAD_H

#include "kv.h"
#include "simd.h"

/* Keys begin .. end - 1, both multiples of 16, of every dim, at their places in [dims, 64]. */
static inline const float *load_keys(const struct kv_cache *cache, size_t block, int begin, int end,
                                     float *keys)
{
    const size_t dims = (size_t)cache->dims;
    if (cache->type == KV_F32)
        return (const float *)cache->k + block * dims * PAGE;
    if (cache->type == KV_F16) {
        const uint16_t *k = (const uint16_t *)cache->k + block * dims * PAGE;
        for (size_t d = 0; d < dims; d++)
            for (int j = begin; j < end; j += LANES)
                v16f_store(keys + d * PAGE + j, v16f_load_f16(k + d * PAGE + j));
        return keys;
    }
    const int8_t *k = (const int8_t *)cache->k + block * dims * PAGE;
    const uint16_t *scales = cache->k_scale + block * (dims / 32) * PAGE;
    for (int j = begin; j < end; j += LANES)
        for (size_t group = 0; group < dims / 32; group++) {
            v16f scale = v16f_load_f16(scales + group * PAGE + j);
            for (size_t d = 32 * group; d < 32 * group + 32; d++) {
                v16f codes = v16i_to_float(v16i_load_i8(k + d * PAGE + j));
                v16f_store(keys + d * PAGE + j, v16f_mul(scale, codes));
            }
        }
    return keys;
}

/* Values begin .. end - 1 at their places in [64, row_dims]. */
static inline const float *load_values(const struct kv_cache *cache, size_t block, int begin,
                                       int end, float *values)
{
    const size_t dims = (size_t)cache->row_dims;
    if (cache->type == KV_F32)
        return (const float *)cache->v + block * dims * PAGE;
    const size_t first = (size_t)begin * dims, last = (size_t)end * dims;
    if (cache->type == KV_F16) {
        const uint16_t *v = (const uint16_t *)cache->v + block * dims * PAGE;
        for (size_t i = first; i < last; i += LANES)
            v16f_store(values + i, v16f_load_f16(v + i));
        return values;
    }
    const int8_t *v = (const int8_t *)cache->v + block * dims * PAGE;
    const uint16_t *scales = cache->v_scale + block * (dims / 32) * PAGE;
    for (size_t i = first; i < last; i += 32) {
        v16f scale = v16f_set1(f32_from_f16(scales[i / 32]));
        for (size_t half = i; half < i + 32; half += LANES)
            v16f_store(values + half, v16f_mul(scale, v16i_to_float(v16i_load_i8(v + half))));
    }
    return values;
}

#endif
