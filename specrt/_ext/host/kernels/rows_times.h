/* A few rows times a matrix, the products of each sum added in ascending order. */
#ifndef SPECRT_ROWS_TIMES_H
#define SPECRT_ROWS_TIMES_H

#include "simd.h"

/* A matrix's columns lie in lanes; strides are in floats. */
struct rows_times {
    const float *x; /* [rows, >= end] */
    const float *m; /* [>= end, columns] */
    float *out;     /* [rows, columns] */
    size_t x_stride, m_stride, out_stride;
};

/* out += x m over inner indices begin .. end - 1, for rows r .. r + rows - 1 and 16 * vectors
 * columns from c on: acc = fma(x, m, acc) from what out holds. */
static inline __attribute__((always_inline)) void
rows_times_tile(const struct rows_times *a, int r, const int rows, int c, const int vectors,
                int begin, int end)
{
    v16f acc[4][4];
    const float *x = a->x + (size_t)r * a->x_stride, *m = a->m + c;
    float *out = a->out + (size_t)r * a->out_stride + c;
#pragma GCC unroll 4
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++)
            acc[i][j] = v16f_load(out + (size_t)i * a->out_stride + LANES * j);
    for (int k = begin; k < end; k++) {
        const float *line = m + (size_t)k * a->m_stride;
        v16f columns[4];
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++)
            columns[j] = v16f_load(line + LANES * j);
#pragma GCC unroll 4
        for (int i = 0; i < rows; i++) {
            v16f factor = v16f_set1(x[(size_t)i * a->x_stride + (size_t)k]);
#pragma GCC unroll 4
            for (int j = 0; j < vectors; j++)
                acc[i][j] = v16f_fma(factor, columns[j], acc[i][j]);
        }
    }
#pragma GCC unroll 4
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++)
            v16f_store(out + (size_t)i * a->out_stride + LANES * j, acc[i][j]);
}

/* For 1 .. V16F_TILE rows from r on, and columns first .. last - 1 (multiples of 16). */
static inline void rows_times(const struct rows_times *a, int r, int rows, int first, int last,
                              int begin, int end)
{
    int c = first;
#define ROWS_TIMES(n)                                                        \
    case n:                                                                  \
        for (; c + LANES * V16F_TILE <= last; c += LANES * V16F_TILE)        \
            rows_times_tile(a, r, n, c, V16F_TILE, begin, end);              \
        for (; c < last; c += LANES)                                         \
            rows_times_tile(a, r, n, c, 1, begin, end);                      \
        break
    switch (rows) {
        ROWS_TIMES(1);
#if V16F_TILE > 1
        ROWS_TIMES(2);
#endif
#if V16F_TILE > 2
        ROWS_TIMES(3);
        ROWS_TIMES(4);
#endif
    }
#undef ROWS_TIMES
}

#endif
