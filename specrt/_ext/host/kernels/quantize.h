/* Values to int8 blocks: what quantize does, and norms and gates that prepare their own output. */
#ifndef SPECRT_QUANTIZE_H
#define SPECRT_QUANTIZE_H

#include "linear.h"
#include "simd.h"

#define BITS_INFINITY 0x7f800000
#define BITS_SMALLEST 0x1f800000 /* 2^-64 */

/* 32 values x of a row to their places among those of a panel's rows; x becomes what they leave
 * over. */
static inline void quantize_block(v16f x[2], int8_t *q, float *d, float *s, int32_t *sums,
                                  size_t rows)
{
    v16i bits = v16i_max(v16f_bits(v16f_abs(x[0])), v16f_bits(v16f_abs(x[1])));
    int32_t largest = v16i_reduce_max(bits); /* floats without sign order as their bits do */
    int used = largest >= BITS_SMALLEST && largest < BITS_INFINITY;
    float a = f32_from_bits((uint32_t)largest);
    *d = largest >= BITS_INFINITY ? NAN : used ? a / 127.0f : 0.0f;
    v16f inverse = v16f_set1(127.0f / a);
    for (int i = 0; i < 2; i++) {
        int8_t bytes[LANES];
        v16i codes = used ? v16f_to_int(v16f_mul(x[i], inverse)) : v16i_set1(0);
        v16i_store_i8(bytes, codes);
        for (size_t four = 0; four < 4; four++)
            memcpy(q + 4 * rows * (4 * (size_t)i + four), bytes + 4 * four, 4);
        sums[rows * (size_t)i] = v16i_reduce_add(codes);
        x[i] = v16f_fma(v16f_set1(-*d), v16i_to_float(codes), x[i]);
    }
    *s = *d * (float)(sums[0] + sums[rows]);
}

/* Write columns first .. first + n of a row, values x, in the forms that out has. first and n are
 * multiples of 32 unless out has x alone. */
static inline void quantize_values(const float *x, int row, size_t first, size_t n,
                                   const struct acts *out)
{
    const size_t width = (size_t)out->width, panel = (size_t)(row / PANEL) * PANEL * width;
    const size_t left = (size_t)(out->num_rows - row / PANEL * PANEL), place = (size_t)(row % PANEL);
    const size_t rows = left < PANEL ? left : PANEL;
    const struct int8_rows *forms[2] = {&out->first, &out->second};
    if (out->x)
        memcpy(out->x + (size_t)row * width + first, x, 4 * n);
    if (!out->first.q)
        return;
    for (size_t c = 0; c < n; c += 32) {
        const size_t at = panel + (first + c) * rows;
        v16f block[2] = {v16f_load(x + c), v16f_load(x + c + LANES)};
        for (int i = 0; i < 2 && forms[i]->q; i++)
            quantize_block(block, forms[i]->q + at + 4 * place, forms[i]->d + at / 32 + place,
                           forms[i]->s + at / 32 + place, forms[i]->sums + at / 16 + place, rows);
    }
}

#endif
