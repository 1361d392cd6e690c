/* Merging the results of chunks, ascending: one chunk for all queries, or all chunks of a query;
 * and a head's sink, last. */
#ifndef SPECRT_ATTENTION_MERGE_H
#define SPECRT_ATTENTION_MERGE_H

#include "attention.h"
#include "simd.h"

static inline int least(int a, int b) { return a < b ? a : b; }
static inline int most(int a, int b) { return a > b ? a : b; }

/* n zeros, n a multiple of 16; a call of memset would take longer for so few. */
static inline void clear(float *x, int n)
{
    for (int i = 0; i < n; i += LANES)
        v16f_store(x + i, v16f_set1(0.0f));
}

/* Nothing merged yet. */
static void clear_totals(struct attention_scratch *s, int queries, int row_dims)
{
    clear(s->total, queries * row_dims);
    for (int i = 0; i < queries; i++) {
        s->total_top[i] = -INFINITY;
        s->total_sum[i] = 0.0f;
    }
}

static inline void scale_and_add(float *total, const float *chunk, float factor, float chunk_factor,
                                 int row_dims)
{
    const v16f a = v16f_set1(factor), b = v16f_set1(chunk_factor);
    for (int d = 0; d < row_dims; d += LANES) {
        v16f scaled = v16f_mul(v16f_load(chunk + d), b);
        v16f_store(total + d, v16f_fma(v16f_load(total + d), a, scaled));
    }
}

/* The chunk's results into the totals, of those queries that see it; sixteen at a time, since the
 * exponentials cost as much for one. */
static void merge_chunk(struct attention_scratch *s, int queries, int row_dims)
{
    float tops[LANES], sums[LANES], factors[LANES], chunk_factors[LANES];
    for (int i = 0; i < queries; i += LANES) {
        const v16f total = v16f_load(s->total_top + i), chunk = v16f_load(s->chunk_top + i);
        const v16f top = v16f_max(total, chunk);
        const v16f a = v16f_exp_negative(v16f_sub(total, top));
        const v16f b = v16f_exp_negative(v16f_sub(chunk, top));
        v16f_store(tops, top);
        v16f_store(sums, v16f_add(v16f_mul(v16f_load(s->total_sum + i), a),
                                  v16f_mul(v16f_load(s->chunk_sum + i), b)));
        v16f_store(factors, a);
        v16f_store(chunk_factors, b);
        for (int j = i; j < least(i + LANES, queries); j++) {
            if (s->begin[j] == s->end[j])
                continue;
            s->total_top[j] = tops[j - i];
            s->total_sum[j] = sums[j - i];
            scale_and_add(s->total + j * row_dims, s->chunk + j * row_dims, factors[j - i],
                          chunk_factors[j - i], row_dims);
        }
    }
}

/* A head's sink into a query's totals, as a chunk with a weight of 1 and no values. */
static void merge_sink(float sink, float *total, float top, float *sum, int row_dims)
{
    float below[LANES] = {0}, factors[LANES];
    const float largest = top > sink ? top : sink;
    below[0] = top - largest, below[1] = sink - largest;
    v16f_store(factors, v16f_exp_negative(v16f_load(below)));
    *sum = *sum * factors[0] + factors[1];
    const v16f factor = v16f_set1(factors[0]), nothing = v16f_set1(0.0f);
    for (int d = 0; d < row_dims; d += LANES)
        v16f_store(total + d, v16f_fma(v16f_load(total + d), factor, nothing));
}

/* A query's totals to out [dims]. */
static void finish(const struct attention_args *args, int head, float *total, float top, float sum,
                   float *out)
{
    const int dims = args->cache.dims;
    if (args->sinks)
        merge_sink(args->sinks[head], total, top, &sum, args->cache.row_dims);
    const v16f inverse = v16f_set1(1.0f / sum);
    for (int d = 0; d < dims; d += LANES)
        v16f_store_n(out + d, v16f_mul(v16f_load(total + d), inverse), least(dims - d, LANES));
}

/* The place of the chunk behind the one at slot. */
static inline int next_slot(const struct attention_args *args, int slot)
{
    return slot + 1 < args->max_chunks ? slot + 1 : 0;
}

/* 16 * vectors columns of a query's chunks, merged ascending. */
static inline __attribute__((always_inline)) void
merge_columns(const struct attention_args *args, const float *values, int slot, int num_chunks,
              const float *factors, const float *chunk_factors, float *total, const int vectors)
{
    v16f sum[4];
#pragma GCC unroll 4
    for (int j = 0; j < vectors; j++)
        sum[j] = v16f_set1(0.0f);
    for (int i = 0; i < num_chunks; i++, slot = next_slot(args, slot)) {
        const float *chunk = values + (size_t)slot * (size_t)args->cache.row_dims;
        const v16f a = v16f_set1(factors[i]), b = v16f_set1(chunk_factors[i]);
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++)
            sum[j] = v16f_fma(sum[j], a, v16f_mul(v16f_load(chunk + LANES * j), b));
    }
#pragma GCC unroll 4
    for (int j = 0; j < vectors; j++)
        v16f_store(total + LANES * j, sum[j]);
}

/* Factors of the totals and of the chunks, from the chunks' largest scores; returns the sum of
 * weights, and their largest score to largest_of_all. */
static float merge_factors(const struct attention_args *args, const float *tops, const float *sums,
                           int first, int num_chunks, float *factors, float *chunk_factors,
                           float *largest_of_all)
{
    float top = -INFINITY, sum = 0.0f;
    for (int i = 0, slot = first; i < num_chunks; i++, slot = next_slot(args, slot)) {
        const float largest = top > tops[slot] ? top : tops[slot];
        factors[i] = top - largest;
        chunk_factors[i] = tops[slot] - largest;
        top = largest;
    }
    *largest_of_all = top;
    for (int i = 0; i < num_chunks; i += LANES) {
        v16f_store(factors + i, v16f_exp_negative(v16f_load(factors + i)));
        v16f_store(chunk_factors + i, v16f_exp_negative(v16f_load(chunk_factors + i)));
    }
    for (int i = 0, slot = first; i < num_chunks; i++, slot = next_slot(args, slot))
        sum = sum * factors[i] + sums[slot] * chunk_factors[i];
    return sum;
}

/* What merge_chunk would have made of a query's chunks first .. last one by one, to out [dims]. */
static void merge_partials(const struct attention_args *args, struct attention_scratch *s,
                           const float *partials, int first, int last, int head, float *out)
{
    const int row_dims = args->cache.row_dims, slot = first % args->max_chunks;
    const int num_chunks = last - first + 1;
    const size_t room = padded(args->max_chunks);
    const float *sums = partials + room, *values = partials + 2 * room;
    float *a = s->factors, *b = s->factors + room;
    float top;
    const float sum = merge_factors(args, partials, sums, slot, num_chunks, a, b, &top);
    int d = 0;
    for (; d + 4 * LANES <= row_dims; d += 4 * LANES)
        merge_columns(args, values + d, slot, num_chunks, a, b, s->total + d, 4);
    for (; d < row_dims; d += LANES)
        merge_columns(args, values + d, slot, num_chunks, a, b, s->total + d, 1);
    finish(args, head, s->total, top, sum, out);
}

#endif
