/* Reading one head of a KV page, or any matrix of float32, as v16f. */
#ifndef SPECRT_KV_LOAD_H
#define SPECRT_KV_LOAD_H

#include "kv.h"
#include "simd.h"

/* How a matrix is stored: codes are q8_0, and 32 inner indices (keys) or columns (values) share the
 * scale of a column (keys) or of an inner index (values). */
enum form { FLOATS, HALVES, KEY_CODES, VALUE_CODES };

struct matrix {
    const char *at;
    size_t stride;       /* elements from one inner index to the next */
    const float *scales; /* of codes: [dims / 32, 64] of keys, [64, dims / 32] of values */
};

static inline __attribute__((always_inline)) size_t element_bytes(const enum form form)
{
    return form == FLOATS ? 4 : form == HALVES ? 2 : 1;
}

/* Columns c .. c + 15 at inner index k. A product of f16 and int8 is exact. */
static inline __attribute__((always_inline)) v16f
matrix_load(const struct matrix *m, const enum form form, size_t k, size_t c)
{
    const char *at = m->at + (k * m->stride + c) * element_bytes(form);
    if (form == FLOATS)
        return v16f_load((const float *)at);
    if (form == HALVES)
        return v16f_load_f16((const uint16_t *)at);
    const v16f codes = v16i_to_float(v16i_load_i8((const int8_t *)at));
    const v16f scale = form == KEY_CODES ? v16f_load(m->scales + k / 32 * PAGE + c)
                                         : v16f_set1(m->scales[k * (m->stride / 32) + c / 32]);
    return v16f_mul(scale, codes);
}

/* A page's f16 scales as floats: 64 of them for every 32 dims. */
static inline const float *load_scales(const struct kv_cache *cache, const uint16_t *scales,
                                       size_t block, float *out)
{
    const size_t n = (size_t)cache->dims / 32 * PAGE;
    if (cache->type != KV_Q8_0)
        return NULL;
    for (size_t i = 0; i < n; i += LANES)
        v16f_store(out + i, v16f_load_f16(scales + block * n + i));
    return out;
}

static inline size_t kv_element_bytes(int type)
{
    return type == KV_F32 ? 4 : type == KV_F16 ? 2 : 1;
}

/* Where the keys [dims, 64] of a block begin. */
static inline const char *keys_of(const struct kv_cache *cache, size_t block)
{
    const size_t size = (size_t)cache->dims * PAGE * kv_element_bytes(cache->type);
    return (const char *)cache->k + block * size;
}

/* They as a matrix; scales is room for those of q8_0. */
static inline struct matrix load_keys(const struct kv_cache *cache, size_t block, float *scales)
{
    return (struct matrix){keys_of(cache, block), PAGE,
                           load_scales(cache, cache->k_scale, block, scales)};
}

/* The values [64, row_dims]. */
static inline struct matrix load_values(const struct kv_cache *cache, size_t block, float *scales)
{
    const size_t size = (size_t)cache->row_dims * PAGE * kv_element_bytes(cache->type);
    return (struct matrix){(const char *)cache->v + block * size, (size_t)cache->row_dims,
                           load_scales(cache, cache->v_scale, block, scales)};
}

#endif
