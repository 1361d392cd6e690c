/* One draw from a row of logits; the meaning stands in specrt/reference/sampling.py.
 *
 * The row is read in blocks of BLOCK ids. The maximum of each block is found first, so that every
 * later pass skips the blocks that hold nothing it looks for. Tokens are ordered by a key (logit
 * descending, then id ascending); what a filter keeps is always a prefix of that order, so it is
 * stored as its last member, the cut. Weights are integers: their sums are exact in any order.
 * No fma and no order of floats, so a compiler may vectorise every loop without changing a bit.
 */
#ifndef SPECRT_SAMPLER_H
#define SPECRT_SAMPLER_H

#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

/* The passes over the whole row exist twice, chosen when the module is loaded. */
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__)
#define PASS static __attribute__((target_clones("avx2", "default")))
#else
#define PASS static
#endif
#define INLINE static inline __attribute__((always_inline))

enum { BLOCK = 32, LEVELS_PER_NAT = 32, LEVELS = 29 * LEVELS_PER_NAT + 1 };
static const float LEAST = -29.0f; /* its weight is 0 */

typedef struct {
    uint64_t key, weight;
} item;

typedef struct {
    const float *x; /* [size] logits after bias and penalties */
    float *maxima;  /* [blocks] */
    uint64_t *sums; /* [blocks] scratch */
    item *items;    /* [size] scratch */
    int size, blocks;
    float max;          /* of all, -inf if there is none */
    float scale, t_min; /* 1 / temperature; log(min_p), at least LEAST */
    float cut_x;        /* kept: x > cut_x, or x == cut_x and id <= cut_id */
    int cut_id;
} row;

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

/* Ascending keys are descending logits, then ascending ids; NaN counts as -inf, -0 as 0. */
static uint64_t order_key(float x, int id)
{
    uint32_t bits;
    x = x == x ? x + 0.0f : -INFINITY;
    memcpy(&bits, &x, 4);
    bits ^= bits >> 31 ? 0xFFFFFFFFu : 0x80000000u;
    return (uint64_t)~bits << 32 | (uint32_t)id;
}

static float key_logit(uint64_t key)
{
    uint32_t bits = ~(uint32_t)(key >> 32);
    float x;
    bits ^= bits >> 31 ? 0x80000000u : 0xFFFFFFFFu;
    memcpy(&x, &bits, 4);
    return x;
}

/* The block's logits; the last block is filled up with NaN, which nothing keeps. */
INLINE const float *block_of(const row *r, int b, float *pad)
{
    int count = r->size - b * BLOCK;
    if (count >= BLOCK)
        return r->x + b * BLOCK;
    for (int i = 0; i < BLOCK; i++)
        pad[i] = i < count ? r->x[b * BLOCK + i] : NAN;
    return pad;
}

PASS void find_maxima(row *r)
{
    float pad[BLOCK], lanes[4];
    r->max = -INFINITY;
    for (int b = 0; b < r->blocks; b++) {
        const float *x = block_of(r, b, pad);
        for (int j = 0; j < 4; j++)
            lanes[j] = -INFINITY;
        for (int i = 0; i < BLOCK; i += 4)
            for (int j = 0; j < 4; j++)
                lanes[j] = x[i + j] > lanes[j] ? x[i + j] : lanes[j];
        for (int j = 1; j < 4; j++)
            lanes[0] = lanes[j] > lanes[0] ? lanes[j] : lanes[0];
        r->maxima[b] = lanes[0];
        r->max = lanes[0] > r->max ? lanes[0] : r->max;
    }
}

static int find_argmax(const row *r)
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

INLINE float scale_logit(const row *r, float x)
{
    float max = FLT_MAX < r->max ? FLT_MAX : r->max;
    return ((FLT_MAX < x ? FLT_MAX : x) - max) * r->scale;
}

INLINE int block_is_cut(const row *r, int b)
{
    return r->maxima[b] < r->cut_x || scale_logit(r, r->maxima[b]) < r->t_min;
}

/* t of the block's kept tokens, LEAST for all others. */
INLINE void scale_block(const row *r, int b, float *restrict t)
{
    float pad[BLOCK];
    const float *x = block_of(r, b, pad);
    for (int i = 0; i < BLOCK; i++) {
        int above = x[i] > r->cut_x, at = (x[i] == r->cut_x) & (b * BLOCK + i <= r->cut_id);
        float scaled = scale_logit(r, x[i]);
        t[i] = (above | at) & (scaled >= r->t_min) ? scaled : LEAST;
    }
}

/* w = rint(2^40 exp(t)) for LEAST <= t <= 0; returns the sum. */
INLINE uint64_t weigh_block(const float *restrict t, uint64_t *restrict w)
{
    const float rounding = 3 << 22;
    const double integer = 0x1p52; /* an integer added to it lies in the low bits */
    float e[BLOCK];
    uint64_t sum = 0, base;
    memcpy(&base, &integer, 8);
    for (int i = 0; i < BLOCK; i++) {
        float n = (t[i] * 1.4426950408889634f + rounding) - rounding;
        float r = (t[i] - n * 0.693359375f) - n * -2.12194440e-4f, p = 1.9875691500e-4f, power;
        int32_t bits = ((int32_t)n + 127) << 23;
        p = p * r + 1.3981999507e-3f;
        p = p * r + 8.3334519073e-3f;
        p = p * r + 4.1665795894e-2f;
        p = p * r + 1.6666665459e-1f;
        p = p * r + 5.0000001201e-1f;
        memcpy(&power, &bits, 4);
        e[i] = ((p * (r * r) + r) + 1.0f) * power;
    }
    for (int i = 0; i < BLOCK; i++) {
        double weight = (double)e[i] * 0x1p40 + integer;
        memcpy(&w[i], &weight, 8);
        w[i] -= base;
        sum += w[i];
    }
    return sum;
}

static void sort_items(item *a, int64_t n)
{
    for (int64_t i = 1; i < n; i++) {
        item moved = a[i];
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
static uint64_t find_cut(item *a, int64_t n, uint64_t need)
{
    while (n > 16) {
        uint64_t pivot = median(a[0].key, a[n / 2].key, a[n - 1].key), weight = 0;
        int64_t front = 0;
        for (int64_t i = 0; i < n; i++) {
            item seen = a[i];
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

static void set_cut(row *r, uint64_t key)
{
    r->cut_x = key_logit(key);
    r->cut_id = (int)(uint32_t)key;
}

/* Bring the k first tokens to the front of items, in no order; returns the last one's key. */
static uint64_t find_top(row *r, int k)
{
    float least = -INFINITY; /* k blocks have a maximum as large, so k tokens are */
    int64_t n = 0;
    if (k < r->blocks) {
        for (int b = 0; b < r->blocks; b++)
            r->items[b] = (item){order_key(r->maxima[b], b), 1};
        least = key_logit(find_cut(r->items, r->blocks, k));
    }
    for (int b = 0; b < r->blocks; b++) {
        int end = (b + 1) * BLOCK < r->size ? (b + 1) * BLOCK : r->size;
        for (int id = b * BLOCK; id < end && r->maxima[b] >= least; id++)
            if (!(r->x[id] < least))
                r->items[n++] = (item){order_key(r->x[id], id), 1};
    }
    return find_cut(r->items, n, k);
}

static uint64_t whole_part(double top_p, uint64_t total)
{
    uint64_t need = (uint64_t)ceil(top_p * (double)total); /* total < 2^64 - 2^11: V < 2^23 */
    return need < 1 ? 1 : need > total ? total : need;
}

INLINE int level_of(float t)
{
    return (int)(t * -(float)LEVELS_PER_NAT);
}

/* Cut after the fewest first tokens that weigh top_p of what is kept: find the level of t in which
 * the cut lies by adding weights per level, then order that level's tokens alone. */
PASS void cut_nucleus(row *r, double top_p)
{
    uint64_t level_weight[LEVELS] = {0}, w[BLOCK], total = 0, need;
    float t[BLOCK];
    int level = 0;
    int64_t n = 0;
    for (int b = 0; b < r->blocks; b++) {
        if (block_is_cut(r, b))
            continue;
        scale_block(r, b, t);
        total += weigh_block(t, w);
        for (int i = 0; i < BLOCK; i++)
            level_weight[level_of(t[i])] += w[i];
    }
    need = whole_part(top_p, total);
    for (; level_weight[level] < need; level++)
        need -= level_weight[level];
    for (int b = 0; b < r->blocks; b++) {
        if (block_is_cut(r, b) || level_of(scale_logit(r, r->maxima[b])) > level)
            continue;
        int found = 0;
        scale_block(r, b, t);
        for (int i = 0; i < BLOCK; i++)
            found |= level_of(t[i]) == level;
        if (!found)
            continue;
        weigh_block(t, w);
        for (int i = 0; i < BLOCK; i++)
            if (level_of(t[i]) == level && w[i] > 0)
                r->items[n++] = (item){order_key(r->x[b * BLOCK + i], b * BLOCK + i), w[i]};
    }
    set_cut(r, find_cut(r->items, n, need));
}

/* Inverse CDF ascending by id over what is kept. */
PASS int pick(row *r, uint64_t uniform)
{
    uint64_t w[BLOCK], total = 0, target;
    float t[BLOCK];
    int b, i;
    for (b = 0; b < r->blocks; b++) {
        r->sums[b] = 0;
        if (block_is_cut(r, b))
            continue;
        scale_block(r, b, t);
        r->sums[b] = weigh_block(t, w);
        total += r->sums[b];
    }
    target = (uint64_t)(((unsigned __int128)uniform * total) >> 64);
    for (b = 0; target >= r->sums[b]; b++)
        target -= r->sums[b];
    scale_block(r, b, t);
    weigh_block(t, w);
    for (i = 0; target >= w[i]; i++)
        target -= w[i];
    return b * BLOCK + i;
}

/* The log of the sum of exp(x), in float64, ascending by id; +inf counts as the largest float. */
static double log_sum_exp(const row *r)
{
    double max = FLT_MAX < r->max ? FLT_MAX : r->max, sum = 0;
    for (int i = 0; i < r->size; i++)
        if (r->x[i] > -INFINITY)
            sum += exp((double)(FLT_MAX < r->x[i] ? FLT_MAX : r->x[i]) - max);
    return max + log(sum);
}

#endif
