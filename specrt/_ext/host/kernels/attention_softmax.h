/* The softmax of a chunk of keys, of which a query sees begin .. end - 1. */
#ifndef SPECRT_ATTENTION_SOFTMAX_H
#define SPECRT_ATTENTION_SOFTMAX_H

#include "attention.h"
#include "simd.h"

/* Scale and cap dots in place, -inf where a key is hidden; returns the largest. */
static inline __attribute__((always_inline)) float
scale_keys(float *scores, const struct attention_args *args, const int begin, const int end)
{
    const v16f scale = v16f_set1(args->scale), cap = v16f_set1(args->softcap);
    v16f top = v16f_set1(-INFINITY);
#pragma GCC unroll 4
    for (int i = begin / LANES * LANES; i < end; i += LANES) {
        v16f s = v16f_mul(v16f_load(scores + i), scale);
        if (args->softcap > 0)
            s = v16f_mul(cap, v16f_tanh(v16f_div(s, cap)));
        if (end < i + LANES)
            s = v16f_select(v16m_first(end - i), s, v16f_set1(-INFINITY));
        if (begin > i)
            s = v16f_select(v16m_first(begin - i), v16f_set1(-INFINITY), s);
        v16f_store(scores + i, s);
        top = v16f_max(top, s);
    }
    return v16f_reduce_max(top);
}

/* Scores to exponentials of what they are below the largest; returns their sum: lane j sums keys j,
 * j + 16, ...; then the tree. */
static inline __attribute__((always_inline)) float
exponentiate_keys(float *scores, float largest, const int begin, const int end)
{
    const v16f top = v16f_set1(largest);
    v16f sum = v16f_set1(0.0f);
#pragma GCC unroll 4
    for (int i = begin / LANES * LANES; i < end; i += LANES) {
        v16f p = v16f_exp_negative(v16f_sub(v16f_load(scores + i), top));
        v16f_store(scores + i, p);
        sum = v16f_add(sum, p);
    }
    return v16f_reduce_add(sum);
}

/* Most chunks are seen whole: for them the loops are unrolled. */
static inline float scale_scores(float *scores, const struct attention_args *args, int begin,
                                 int end)
{
    return begin == 0 && end == PAGE ? scale_keys(scores, args, 0, PAGE)
                                     : scale_keys(scores, args, begin, end);
}

static inline float exponentiate(float *scores, float largest, int begin, int end)
{
    return begin == 0 && end == PAGE ? exponentiate_keys(scores, largest, 0, PAGE)
                                     : exponentiate_keys(scores, largest, begin, end);
}

#endif
