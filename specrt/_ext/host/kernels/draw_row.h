/* One draw from a row of logits; the meaning stands in specrt/reference/sampling.py.
 *
 * The row is read in blocks of BLOCK ids. The maximum of each block is found first, so that every
 * later pass skips the blocks that hold nothing it looks for. Tokens are ordered by a key (logit
 * descending, then id ascending); what a filter keeps is always a prefix of that order, so it is
 * stored as its last member, the cut. Weights are integers: their sums are exact in any order.
 */
#ifndef SPECRT_DRAW_ROW_H
#define SPECRT_DRAW_ROW_H

#include <float.h>
#include <limits.h>

#include "sample.h"
#include "simd.h"

enum { BLOCK = 4 * LANES, LEVELS_PER_NAT = 32, LEVELS = 29 * LEVELS_PER_NAT + 1 };
static const float LEAST = -29.0f; /* its weight is 0 */

struct item {
    uint64_t key, weight;
};

struct row {
    const float *x; /* [size] logits after bias and penalties */
    float *maxima;  /* [blocks] */
    uint64_t *sums; /* [blocks] scratch */
    struct item *items; /* [size] scratch */
    int size, blocks;
    float max;          /* of all, -inf if there is none */
    float scale, least; /* 1 / temperature; log(min_p), at least LEAST */
    float cut_x;        /* kept: x > cut_x, or x == cut_x and id <= cut_id */
    int cut_id;
};

static struct row row_over(const float *x, int size, void *scratch)
{
    const int blocks = (size + BLOCK - 1) / BLOCK;
    struct item *items = scratch;
    uint64_t *sums = (uint64_t *)(items + size);
    return (struct row){.x = x, .items = items, .sums = sums, .maxima = (float *)(sums + blocks),
                        .size = size, .blocks = blocks, .max = -INFINITY, .least = LEAST,
                        .cut_x = -INFINITY, .cut_id = INT_MAX};
}

static uint64_t philox_uniform(uint64_t seed, uint64_t position)
{
    uint32_t c0 = (uint32_t)position, c1 = (uint32_t)(position >> 32), c2 = 0, c3 = 0;
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int i = 0; i < 10; i++) {
        uint64_t p0 = 0xD2511F53ull * c0, p1 = 0xCD9E8D57ull * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return (uint64_t)c0 << 32 | c1;
}

/* The block's logits; the last block is filled up with NaN, which nothing keeps. */
ALWAYS_INLINE const float *block_of(const struct row *r, int b, float *pad)
{
    const int count = r->size - b * BLOCK;
    if (count >= BLOCK)
        return r->x + b * BLOCK;
    for (int i = 0; i < BLOCK; i++)
        pad[i] = i < count ? r->x[b * BLOCK + i] : NAN;
    return pad;
}

static void find_maxima(struct row *r)
{
    float pad[BLOCK];
    for (int b = 0; b < r->blocks; b++) {
        const float *x = block_of(r, b, pad);
        v16f most = v16f_set1(-INFINITY);
        for (int i = 0; i < BLOCK; i += LANES)
            most = v16f_max(v16f_load(x + i), most); /* a NaN gives what there was */
        r->maxima[b] = v16f_reduce_max(most);
        r->max = r->maxima[b] > r->max ? r->maxima[b] : r->max;
    }
}

static int find_argmax(const struct row *r)
{
    int b = 0, id;
    if (r->max == -INFINITY)
        return 0;
    while (r->maxima[b] != r->max)
        b++;
    for (id = b * BLOCK; r->x[id] != r->max; id++)
        ;
    return id;
}

/* How far a logit is below the largest, over temperature. */
ALWAYS_INLINE v16f scale_logits(const struct row *r, v16f x)
{
    const v16f most = v16f_set1(FLT_MAX), max = v16f_min(most, v16f_set1(r->max));
    return v16f_mul(v16f_sub(v16f_min(most, x), max), v16f_set1(r->scale));
}

static inline float scale_logit(const struct row *r, float x)
{
    const float max = FLT_MAX < r->max ? FLT_MAX : r->max;
    return ((FLT_MAX < x ? FLT_MAX : x) - max) * r->scale;
}

static inline int block_is_cut(const struct row *r, int b, float least)
{
    return r->maxima[b] < r->cut_x || scale_logit(r, r->maxima[b]) < least;
}

/* t of the kept ones of 16 tokens from id on, LEAST for all others. */
ALWAYS_INLINE v16f kept_of(const struct row *r, const float *from, int id)
{
    const v16f x = v16f_load(from), none = v16f_set1(LEAST);
    v16f t = scale_logits(r, x);
    t = v16f_select(v16f_lt(t, v16f_set1(r->least)), none, v16f_max(t, none)); /* NaN goes too */
    if (r->cut_x == -INFINITY) /* what is not above has no weight anyway */
        return t;
    const v16f cut = v16f_set1(r->cut_x), above = v16f_select(v16f_lt(cut, x), t, none);
    if (id > r->cut_id)
        return above;
    t = v16f_select(v16f_lt(x, cut), none, t);
    const int num_first = r->cut_id - id < LANES ? r->cut_id - id + 1 : LANES;
    return v16f_select(v16m_first(num_first), t, above);
}

/* rint(2^40 exp(t)) for LEAST <= t <= 0. */
ALWAYS_INLINE v16l weights_of(v16f t)
{
    const v16f rounding = v16f_set1(3 << 22); /* what is added to it lies in its low bits */
    const v16f rounded = v16f_add(v16f_mul(t, v16f_set1(1.4426950408889634f)), rounding);
    const v16f n = v16f_sub(rounded, rounding);
    v16f r = v16f_sub(t, v16f_mul(n, v16f_set1(0.693359375f)));
    r = v16f_sub(r, v16f_mul(n, v16f_set1(-2.12194440e-4f)));
    v16f p = v16f_set1(1.9875691500e-4f);
    p = v16f_add(v16f_mul(p, r), v16f_set1(1.3981999507e-3f));
    p = v16f_add(v16f_mul(p, r), v16f_set1(8.3334519073e-3f));
    p = v16f_add(v16f_mul(p, r), v16f_set1(4.1665795894e-2f));
    p = v16f_add(v16f_mul(p, r), v16f_set1(1.6666665459e-1f));
    p = v16f_add(v16f_mul(p, r), v16f_set1(5.0000001201e-1f));
    p = v16f_add(v16f_add(v16f_mul(p, v16f_mul(r, r)), r), v16f_set1(1.0f));
    return v16f_to_long(v16f_add_exponent(p, v16i_add(v16f_bits(rounded), v16i_set1(40))));
}

/* The weights of a block's kept tokens, and their sum. */
ALWAYS_INLINE uint64_t weigh_block(const struct row *r, int b, uint64_t *w)
{
    float pad[BLOCK];
    const float *x = block_of(r, b, pad);
    v16l sum;
    for (int i = 0; i < BLOCK; i += LANES) {
        const v16l weights = weights_of(kept_of(r, x + i, b * BLOCK + i));
        if (w)
            v16l_store(w + i, weights);
        sum = i ? v16l_add(sum, weights) : weights;
    }
    return v16l_reduce_add(sum);
}

/* The sums of all blocks, and of all. */
static uint64_t weigh_row(struct row *r)
{
    uint64_t total = 0;
    for (int b = 0; b < r->blocks; b++) {
        r->sums[b] = block_is_cut(r, b, r->least) ? 0 : weigh_block(r, b, NULL);
        total += r->sums[b];
    }
    return total;
}

static void sort_items(struct item *a, int64_t n)
{
    for (int64_t i = 1; i < n; i++) {
        struct item moved = a[i];
        int64_t j = i;
        for (; j > 0 && a[j - 1].key > moved.key; j--)
            a[j] = a[j - 1];
        a[j] = moved;
    }
}

static uint64_t median(uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t low = a < b ? a : b, high = a < b ? b : a;
    return c < low ? low : c > high ? high : c;
}

/* The least key such that the items up to it weigh at least need; those come to the front.
 * Keys differ, 1 <= need <= the sum of the weights. */
static uint64_t find_cut(struct item *a, int64_t n, uint64_t need)
{
    while (n > 16) {
        uint64_t pivot = median(a[0].key, a[n / 2].key, a[n - 1].key), weight = 0;
        int64_t front = 0;
        for (int64_t i = 0; i < n; i++) {
            struct item seen = a[i];
            int goes = seen.key <= pivot;
            a[i] = a[front];
            a[front] = seen;
            front += goes;
            weight += goes ? seen.weight : 0;
        }
        if (weight >= need) {
            n = front;
        } else {
            need -= weight;
            a += front;
            n -= front;
        }
    }
    sort_items(a, n);
    while (a->weight < need) {
        need -= a->weight;
        a++;
    }
    return a->key;
}

static void set_cut(struct row *r, uint64_t key)
{
    r->cut_x = key_logit(key);
    r->cut_id = (int)(uint32_t)key;
}

/* Bring the k first tokens to the front of items, in no order; returns the last one's key. */
static uint64_t find_top(struct row *r, int k)
{
    float least = -INFINITY; /* k blocks have a maximum as large, so k tokens are */
    int64_t n = 0;
    if (k < r->blocks) {
        for (int b = 0; b < r->blocks; b++)
            r->items[b] = (struct item){order_key(r->maxima[b], b), 1};
        least = key_logit(find_cut(r->items, r->blocks, (uint64_t)k));
    }
    for (int b = 0; b < r->blocks; b++) {
        const int end = (b + 1) * BLOCK < r->size ? (b + 1) * BLOCK : r->size;
        for (int id = b * BLOCK; id < end && r->maxima[b] >= least; id++)
            if (!(r->x[id] < least))
                r->items[n++] = (struct item){order_key(r->x[id], id), 1};
    }
    return find_cut(r->items, n, (uint64_t)k);
}

static uint64_t whole_part(double top_p, uint64_t total)
{
    uint64_t need = (uint64_t)ceil(top_p * (double)total); /* total < 2^64 - 2^11: V < 2^23 */
    return need < 1 ? 1 : need > total ? total : need;
}

static inline int level_of(float t) { return (int)(t * -(float)LEVELS_PER_NAT); }

/* A t such that all tokens below it weigh at most as much as may be left out. */
static float nucleus_least(const struct row *r, uint64_t left_out)
{
    const double each = (double)left_out / r->size - 1; /* a weight is rounded up by at most 1/2 */
    const double t = each > 1 ? log(each * 0x1p-40) - 1e-3 : LEAST;
    return t > (double)r->least ? (float)t : r->least;
}

/* t of a block's kept tokens; returns those with least <= t <= most, token i as bit i. */
static uint64_t list_block(const struct row *r, int b, float least, float most, float *t)
{
    float pad[BLOCK];
    const float *x = block_of(r, b, pad);
    uint64_t out = 0;
    if (block_is_cut(r, b, least))
        return 0;
    for (int i = 0; i < BLOCK; i += LANES) {
        const v16f kept = kept_of(r, x + i, b * BLOCK + i);
        out |= (uint64_t)v16m_bits(v16f_lt(kept, v16f_set1(least))) << i;
        out |= (uint64_t)v16m_bits(v16f_lt(v16f_set1(most), kept)) << i;
        v16f_store(t + i, kept);
    }
    return ~out;
}

/* The weights that a block's t have. */
static void weigh_list(const float *t, uint64_t *w)
{
    for (int i = 0; i < BLOCK; i += LANES)
        v16l_store(w + i, weights_of(v16f_load(t + i)));
}

/* Cut after the fewest first tokens that weigh top_p of what is kept: find the level of t in which
 * the cut lies by adding weights per level, then order that level's tokens alone. */
static void cut_nucleus(struct row *r, double top_p)
{
    uint64_t level_weight[LEVELS] = {0}, w[BLOCK];
    const uint64_t total = weigh_row(r);
    uint64_t need = whole_part(top_p, total);
    const float least = nucleus_least(r, total - need);
    float t[BLOCK];
    int level = 0;
    int64_t n = 0;
    for (int b = 0; b < r->blocks; b++) {
        uint64_t listed = list_block(r, b, least, 0, t);
        if (listed)
            weigh_list(t, w);
        for (; listed; listed &= listed - 1) {
            const int i = __builtin_ctzll(listed);
            level_weight[level_of(t[i])] += w[i];
        }
    }
    for (; level_weight[level] < need; level++)
        need -= level_weight[level];
    const float high = -(float)level / LEVELS_PER_NAT, low = high - 1.0f / LEVELS_PER_NAT;
    for (int b = 0; b < r->blocks; b++) {
        uint64_t listed = list_block(r, b, low, high, t);
        if (listed)
            weigh_list(t, w);
        for (; listed; listed &= listed - 1) {
            const int i = __builtin_ctzll(listed), id = b * BLOCK + i;
            if (level_of(t[i]) == level && w[i] > 0)
                r->items[n++] = (struct item){order_key(r->x[id], id), w[i]};
        }
    }
    set_cut(r, find_cut(r->items, n, need));
}

/* Inverse CDF ascending by id over what is kept. */
static int pick(struct row *r, uint64_t uniform)
{
    uint64_t w[BLOCK], target = (uint64_t)((unsigned __int128)uniform * weigh_row(r) >> 64);
    int b, i;
    for (b = 0; target >= r->sums[b]; b++)
        target -= r->sums[b];
    weigh_block(r, b, w);
    for (i = 0; target >= w[i]; i++)
        target -= w[i];
    return b * BLOCK + i;
}

#endif
