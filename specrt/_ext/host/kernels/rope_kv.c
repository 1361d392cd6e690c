/* rope_kv: a part is ROPE_ROWS rows of a KV head and of the heads that share it;
 * specrt/reference/rope_kv.py says what it computes. */
#include "rope_kv.h"
#include "norm.h"

/* Of one position. The first of a pair gets -sin times its partner, the second sin times its. */
struct rotation {
    /* By pair; for interleaved pairs cos and sin by dim, with the sign that the dim needs. */
    float *cos, *sin, *minus_sin;
    int dims, half, pairing;
};

static void load_neox(const struct rotation *r, const float *table)
{
    const v16f minus = v16f_set1(-1.0f);
    int i = 0;
    for (; i + LANES <= r->half; i += LANES) {
        v16f cos, sin;
        v16f_load_pairs(table + 2 * i, &cos, &sin);
        v16f_store(r->cos + i, cos);
        v16f_store(r->sin + i, sin);
        v16f_store(r->minus_sin + i, v16f_mul(sin, minus));
    }
    for (; i < r->half; i++) {
        r->cos[i] = table[2 * i];
        r->sin[i] = table[2 * i + 1];
        r->minus_sin[i] = -table[2 * i + 1];
    }
}

static void load_interleaved(const struct rotation *r, const float *table)
{
    static const float signs[LANES] = {-1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1};
    const v16f sign = v16f_load(signs);
    const v16m first = v16f_lt(sign, v16f_set1(0.0f));
    for (int i = 0; i < 2 * r->half; i += LANES) {
        const int n = 2 * r->half - i < LANES ? 2 * r->half - i : LANES;
        const v16f own = v16f_load_n(table + i, n), other = v16f_swap_pairs(own);
        v16f_store(r->cos + i, v16f_select(first, own, other));
        v16f_store(r->sin + i, v16f_mul(v16f_select(first, other, own), sign));
    }
}

/* Pairs i .. i + n - 1, whose second dims are half behind their first: x = fma(partner, sin,
 * x * cos). */
static inline void rotate_neox(const struct rotation *r, float *x, int i, int n)
{
    const v16f cos = v16f_load_n(r->cos + i, n);
    const v16f a = v16f_load_n(x + i, n), b = v16f_load_n(x + r->half + i, n);
    v16f first = v16f_fma(b, v16f_load_n(r->minus_sin + i, n), v16f_mul(a, cos));
    v16f second = v16f_fma(a, v16f_load_n(r->sin + i, n), v16f_mul(b, cos));
    v16f_store_n(x + i, first, n);
    v16f_store_n(x + r->half + i, second, n);
}

/* The same for dims i .. i + n - 1, whose partners are neighbours. */
static inline void rotate_interleaved(const struct rotation *r, float *x, int i, int n)
{
    const v16f own = v16f_load_n(x + i, n);
    const v16f scaled = v16f_mul(own, v16f_load_n(r->cos + i, n));
    v16f_store_n(x + i, v16f_fma(v16f_swap_pairs(own), v16f_load_n(r->sin + i, n), scaled), n);
}

static void rotate(const struct rotation *r, float *x)
{
    int i = 0;
    if (r->pairing == PAIR_NEOX) {
        for (; i + LANES <= r->half; i += LANES)
            rotate_neox(r, x, i, LANES);
        if (i < r->half)
            rotate_neox(r, x, i, r->half - i);
    } else {
        for (; i + LANES <= 2 * r->half; i += LANES)
            rotate_interleaved(r, x, i, LANES);
        if (i < 2 * r->half)
            rotate_interleaved(r, x, i, 2 * r->half - i);
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
    else if (type == KV_F16) {
        int i = 0;
        for (; i + LANES <= dims; i += LANES)
            v16f_store_f16((uint16_t *)codes + i, v16f_load(x + i));
        if (i < dims)
            v16f_store_f16_n((uint16_t *)codes + i, v16f_load_n(x + i, dims - i), dims - i);
    } else
        for (int i = 0; i < dims; i += 32)
            encode_q8_0(x + i, (int8_t *)codes + i, scales + i / 32);
}

static size_t element_size(int type) { return type == KV_F32 ? 4 : type == KV_F16 ? 2 : 1; }

/* n values to every 64th place from to on. */
#define SCATTER(type)                                                \
    static void scatter_##type(const type *from, size_t n, type *to) \
    {                                                                \
        for (size_t i = 0; i < n; i++)                               \
            to[PAGE * i] = from[i];                                  \
    }
SCATTER(uint32_t)
SCATTER(uint16_t)
SCATTER(uint8_t)

/* Where one row's key and value of a head go: a block of a page, and a slot in it. */
struct place {
    size_t block, slot;
};

static struct place place_of(const struct rope_kv_args *args, int row, int head)
{
    const int position = args->step.positions[row], seq = args->step.row_seqs[row];
    const size_t page = kv_page(&args->cache, &args->step, seq, position / PAGE);
    return (struct place){kv_block(&args->cache, page, head), (size_t)(position % PAGE)};
}

/* A key has a line for each dim, which it shares with the keys beside it: all that some rows need
 * are fetched at once. */
static void prefetch_keys(const struct rope_kv_args *args, int row, int rows, int head)
{
    const struct kv_cache *cache = &args->cache;
    const size_t size = element_size(cache->type), stride = PAGE * size, dims = (size_t)cache->dims;
    const char *last = NULL;
    for (int r = row; r < row + rows; r++) {
        const struct place place = place_of(args, r, head);
        const char *block = (char *)cache->k + place.block * dims * stride;
        const char *at = block + place.slot * size / 64 * 64;
        for (size_t d = 0; at != last && d < dims; d++)
            __builtin_prefetch(at + d * stride, 1);
        last = at;
    }
}

static void store_key(const struct rope_kv_args *args, struct place place, const float *x,
                      void *codes, uint16_t *scales)
{
    const struct kv_cache *cache = &args->cache;
    const size_t dims = (size_t)cache->dims, at = place.block * dims * PAGE + place.slot;
    if (cache->type == KV_F32) {
        scatter_uint32_t((const uint32_t *)x, dims, (uint32_t *)cache->k + at);
        return;
    }
    encode(cache->type, x, cache->dims, codes, scales);
    if (cache->type == KV_F16)
        scatter_uint16_t(codes, dims, (uint16_t *)cache->k + at);
    else {
        scatter_uint8_t(codes, dims, (uint8_t *)cache->k + at);
        scatter_uint16_t(scales, dims / 32,
                         cache->k_scale + place.block * (dims / 32) * PAGE + place.slot);
    }
}

static void store_value(const struct rope_kv_args *args, struct place place, const float *x)
{
    const struct kv_cache *cache = &args->cache;
    const size_t at = place.block * PAGE + place.slot;
    encode(cache->type, x, cache->dims,
           (char *)cache->v + at * (size_t)cache->row_dims * element_size(cache->type),
           cache->v_scale ? cache->v_scale + at * ((size_t)cache->dims / 32) : NULL);
}

void KERNEL(rope_kv)(const void *pointer, int part, void *scratch)
{
    const struct rope_kv_args *args = pointer;
    const int dims = args->cache.dims, kv_heads = args->cache.num_heads;
    const int head = part % kv_heads, per_head = args->num_heads / kv_heads;
    const int row = part / kv_heads * ROPE_ROWS, left = args->num_rows - row;
    const int rows = left < ROPE_ROWS ? left : ROPE_ROWS;
    const int room = (dims + 15) / 16 * 16;
    float *at = scratch;
    const struct rotation r = {at, at + room, at + 2 * room, dims, args->num_pairs, args->pairing};
    void *codes = at + 3 * room;
    uint16_t *scales = (uint16_t *)(at + 4 * room);
    prefetch_keys(args, row, rows, head);
    for (int i = row; i < row + rows; i++) {
        const float *table = args->table + (size_t)args->step.positions[i] * 2 * (size_t)r.half;
        const size_t kv_row = ((size_t)i * (size_t)kv_heads + (size_t)head) * (size_t)dims;
        float *q = args->q + kv_row * (size_t)per_head, *k = args->k + kv_row;
        if (r.pairing == PAIR_NEOX)
            load_neox(&r, table);
        else
            load_interleaved(&r, table);
        norm_and_rotate(&r, q, per_head, args->q_norm, args->eps);
        norm_and_rotate(&r, k, 1, args->k_norm, args->eps);
        const struct place place = place_of(args, i, head);
        store_value(args, place, args->v + kv_row);
        store_key(args, place, k, codes, scales);
    }
}
