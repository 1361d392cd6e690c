/* Values to int8 blocks: what quantize does, and norms and gates that prepare their own output. */
#ifndef SPECRT_QUANTIZE_H
#define SPECRT_QUANTIZE_H

#include "linear.h"
#include "simd.h"

#define BITS_INFINITY 0x7f800000
#define BITS_SMALLEST 0x1f800000 /* 2^-64 */

/* 32 values x to q, d and sums; x becomes what they leave over. */
static inline void quantize_block(v16f x[2], int8_t *q, float *d, int32_t *sums)
{
    v16i bits = v16i_max(v16f_bits(v16f_abs(x[0])), v16f_bits(v16f_abs(x[1])));
    int32_t largest = v16i_reduce_max(bits); /* floats without sign order as their bits do */
    int used = largest >= BITS_SMALLEST && largest < BITS_INFINITY;
    float a = f32_from_bits((uint32_t)largest);
    *d = largest >= BITS_INFINITY ? NAN : used ? a / 127.0f : 0.0f;
    v16f inverse = v16f_set1(127.0f / a);
    for (int i = 0; i < 2; i++) {
        v16i codes = used ? v16f_to_int(v16f_mul(x[i], inverse)) : v16i_set1(0);
        v16i_store_i8(q + LANES * i, codes);
        sums[i] = v16i_reduce_add(codes);
        x[i] = v16f_fma(v16f_set1(-*d), v16i_to_float(codes), x[i]);
    }
}

/* Write n values in the forms that out has, of which the first stands at start: rows follow each
 * other, so a row's end is none here. n is a multiple of 32 unless out has x alone. */
static inline void quantize_values(const float *x, size_t start, size_t n, const struct acts *out)
{
    const struct int8_rows *first = &out->first, *second = &out->second;
    if (out->x)
        memcpy(out->x + start, x, 4 * n);
    if (!first->q)
        return;
    for (size_t c = 0; c < n; c += 32) {
        size_t at = start + c;
        v16f block[2] = {v16f_load(x + c), v16f_load(x + c + LANES)};
        quantize_block(block, first->q + at, first->d + at / 32, first->sums + at / 16);
        if (second->q)
            quantize_block(block, second->q + at, second->d + at / 32, second->sums + at / 16);
    }
}

#endif
