/* rope_kv: a part is ROPE_ROWS rows; specrt/reference/rope_kv.py says what it computes. */
#include "rope_kv.h"
#include "norm.h"

struct rotation {
    float *cos, *sin; /* [2 * num_pairs] per dim; the first of a pair has -sin */
    float *partner;   /* [2 * num_pairs], the other of each pair */
    int dims, half, pairing;
};

static void load_rotation(struct rotation *r, const float *table)
{
    for (int i = 0; i < r->half; i++) {
        int first = r->pairing == PAIR_NEOX ? i : 2 * i;
        int second = r->pairing == PAIR_NEOX ? i + r->half : 2 * i + 1;
        r->cos[first] = r->cos[second] = table[2 * i];
        r->sin[first] = -table[2 * i + 1];
        r->sin[second] = table[2 * i + 1];
    }
}

/* x = fma(partner, sin, x * cos) over the rotated dims. */
static void rotate(const struct rotation *r, float *x)
{
    int rotated = 2 * r->half;
    if (r->pairing == PAIR_NEOX) {
        memcpy(r->partner, x + r->half, 4 * (size_t)r->half);
        memcpy(r->partner + r->half, x, 4 * (size_t)r->half);
    } else
        for (int i = 0; i < rotated; i++)
            r->partner[i] = x[i ^ 1];
    for (int i = 0; i < rotated; i += LANES) {
        int n = rotated - i < LANES ? rotated - i : LANES;
        v16f own = v16f_mul(v16f_load_n(x + i, n), v16f_load_n(r->cos + i, n));
        v16f other = v16f_load_n(r->partner + i, n);
        v16f_store_n(x + i, v16f_fma(other, v16f_load_n(r->sin + i, n), own), n);
    }
}

static void norm_and_rotate(const struct rotation *r, float *x, int heads, const float *norm,
                            float eps)
{
    for (int h = 0; h < heads; h++, x += r->dims) {
        if (norm) {
            float factor = inverse_rms(x, r->dims, eps);
            for (int i = 0; i < r->dims; i += LANES) {
                int n = r->dims - i < LANES ? r->dims - i : LANES;
                v16f_store_n(x + i, normed(x + i, norm + i, factor, n), n);
            }
        }
        rotate(r, x);
    }
}

static void encode_q8_0(const float *x, int8_t *codes, uint16_t *scale)
{
    v16f low = v16f_load(x), high = v16f_load(x + LANES);
    v16i bits = v16i_max(v16f_bits(v16f_abs(low)), v16f_bits(v16f_abs(high)));
    uint32_t largest = (uint32_t)v16i_reduce_max(bits); /* floats without sign order as their bits */
    int finite = largest < 0x7f800000, used = finite && largest >= 0x1f800000; /* 2^-64 */
    float a = f32_from_bits(largest), d = !finite ? NAN : used ? a / 127.0f : 0.0f;
    v16f inverse = v16f_set1(127.0f / a);
    v16i_store_i8(codes, used ? v16f_to_int(v16f_mul(low, inverse)) : v16i_set1(0));
    v16i_store_i8(codes + LANES, used ? v16f_to_int(v16f_mul(high, inverse)) : v16i_set1(0));
    v16f_store_f16_n(scale, v16f_set1(d), 1);
}

/* One head of a row in the cache's type; scales has one f16 per 32 dims. */
static void encode(int type, const float *x, int dims, void *codes, uint16_t *scales)
{
    if (type == KV_F32)
        memcpy(codes, x, 4 * (size_t)dims);
    else if (type == KV_F16)
        for (int i = 0; i < dims; i += LANES) {
            int n = dims - i < LANES ? dims - i : LANES;
            v16f_store_f16_n((uint16_t *)codes + i, v16f_load_n(x + i, n), n);
        }
    else
        for (int i = 0; i < dims; i += 32)
            encode_q8_0(x + i, (int8_t *)codes + i, scales + i / 32);
}

/* from [rows, stride] to column slots[r] of to[r], [dims, 64]: adjacent slots share lines, so dims
 * go outside. */
#define SCATTER(type)                                                                  \
    static void scatter_##type(const void *from, size_t stride, size_t dims, int rows, \
                               const size_t *to, void *base)                           \
    {                                                                                  \
        for (size_t i = 0; i < dims; i++)                                              \
            for (int r = 0; r < rows; r++)                                             \
                ((type *)base)[to[r] + PAGE * i] = ((const type *)from)[(size_t)r * stride + i]; \
    }
SCATTER(uint32_t)
SCATTER(uint16_t)
SCATTER(uint8_t)

static void store_keys(const struct rope_kv_args *args, const size_t *block, const int *slot,
                       int row, int rows, int head, char *codes)
{
    const struct kv_cache *cache = &args->cache;
    const size_t dims = (size_t)cache->dims, heads = (size_t)cache->num_heads;
    uint16_t *scales = (uint16_t *)(codes + ROPE_ROWS * 4 * dims);
    size_t to[ROPE_ROWS];
    for (int r = 0; r < rows; r++) {
        const float *x = args->k + ((size_t)(row + r) * heads + (size_t)head) * dims;
        size_t size = cache->type == KV_F32 ? 4 : cache->type == KV_F16 ? 2 : 1;
        encode(cache->type, x, cache->dims, codes + (size_t)r * dims * size,
               scales + (size_t)r * (dims / 32));
        to[r] = (block[r] + (size_t)head) * dims * PAGE + (size_t)slot[r];
    }
    if (cache->type == KV_F32)
        scatter_uint32_t(codes, dims, dims, rows, to, cache->k);
    else if (cache->type == KV_F16)
        scatter_uint16_t(codes, dims, dims, rows, to, cache->k);
    else {
        scatter_uint8_t(codes, dims, dims, rows, to, cache->k);
        for (int r = 0; r < rows; r++)
            to[r] = (block[r] + (size_t)head) * (dims / 32) * PAGE + (size_t)slot[r];
        scatter_uint16_t(scales, dims / 32, dims / 32, rows, to, cache->k_scale);
    }
}

static void store_value(const struct rope_kv_args *args, size_t block, int slot, int row, int head)
{
    const struct kv_cache *cache = &args->cache;
    const size_t dims = (size_t)cache->dims, heads = (size_t)cache->num_heads;
    const float *x = args->v + ((size_t)row * heads + (size_t)head) * dims;
    size_t at = (block + (size_t)head) * PAGE + (size_t)slot;
    size_t size = cache->type == KV_F32 ? 4 : cache->type == KV_F16 ? 2 : 1;
    encode(cache->type, x, cache->dims, (char *)cache->v + at * (size_t)cache->row_dims * size,
           cache->v_scale ? cache->v_scale + at * (dims / 32) : NULL);
}

void KERNEL(rope_kv)(const void *pointer, int part, void *scratch)
{
    const struct rope_kv_args *args = pointer;
    const struct kv_cache *cache = &args->cache;
    const int dims = cache->dims, kv_heads = cache->num_heads;
    const int row = part * ROPE_ROWS, left = args->num_rows - row;
    const int rows = left < ROPE_ROWS ? left : ROPE_ROWS;
    float *cos = scratch;
    int padded = (dims + 15) / 16 * 16;
    struct rotation r = {cos, cos + padded, cos + 2 * padded, dims, args->num_pairs, args->pairing};
    char *codes = (char *)(cos + 3 * padded);
    size_t block[ROPE_ROWS]; /* of the row's page, at head 0 */
    int slot[ROPE_ROWS];
    for (int i = 0; i < rows; i++) {
        int position = args->step.positions[row + i], seq = args->step.row_seqs[row + i];
        load_rotation(&r, args->table + (size_t)position * 2 * (size_t)args->num_pairs);
        norm_and_rotate(&r, args->q + (size_t)(row + i) * (size_t)(args->num_heads * dims),
                        args->num_heads, args->q_norm, args->eps);
        norm_and_rotate(&r, args->k + (size_t)(row + i) * (size_t)(kv_heads * dims), kv_heads,
                        args->k_norm, args->eps);
        block[i] = kv_block(cache, kv_page(cache, &args->step, seq, position / PAGE), 0);
        slot[i] = position % PAGE;
        for (int head = 0; head < kv_heads; head++)
            store_value(args, block[i], slot[i], row + i, head);
    }
    for (int head = 0; head < kv_heads; head++)
        store_keys(args, block, slot, row, rows, head, codes);
}
