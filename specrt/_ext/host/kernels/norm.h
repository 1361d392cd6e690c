/* The root mean square that rms_norm and rope_kv divide by. */
#ifndef SPECRT_NORM_H
#define SPECRT_NORM_H

#include "simd.h"

/* 1 / sqrt(mean x^2 + eps): lane j sums x[j], x[j + 16], ..., then the tree 8, 4, 2, 1. */
static inline float inverse_rms(const float *x, int n, float eps)
{
    v16f sum = v16f_set1(0.0f);
    int i = 0;
    for (; i + LANES <= n; i += LANES) {
        v16f v = v16f_load(x + i);
        sum = v16f_fma(v, v, sum);
    }
    if (i < n) {
        v16f v = v16f_load_n(x + i, n - i);
        sum = v16f_fma(v, v, sum);
    }
    return 1.0f / sqrtf(v16f_reduce_add(sum) / (float)n + eps);
}

/* Up to 16 values: (x * factor) * weight. */
static inline v16f normed(const float *x, const float *weight, float factor, int n)
{
    v16f v = v16f_mul(v16f_load_n(x, n), v16f_set1(factor));
    return weight ? v16f_mul(v, v16f_load_n(weight, n)) : v;
}

#endif
