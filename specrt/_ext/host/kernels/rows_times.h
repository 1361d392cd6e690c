/* A few rows times a matrix, the products of each sum added in ascending order. */
#ifndef SPECRT_ROWS_TIMES_H
#define SPECRT_ROWS_TIMES_H

#include "kv_load.h"

/* The matrix's columns lie in lanes; strides are in floats. */
struct rows_times {
    const float *x;  /* [rows, >= end] */
    struct matrix m; /* [>= end, columns] */
    float *out;      /* [rows, columns] */
    size_t x_stride, out_stride;
    /* What will be read next lies so many bytes behind m, and comes into the cache meanwhile, as
     * much of it as is read of m. 0: nothing does. */
    ptrdiff_t ahead;
};

/* How a sum over inner indices meets what out holds: the chain of fmas starts there, or it starts at
 * zero and is added in the end. */
enum sum { CONTINUE, ADD };

/* Where to prefetch to: a page and what is computed from it fill the first level. */
#define SECOND_LEVEL 2

#define INLINE static inline __attribute__((always_inline))

/* Columns of a tile of so many rows, in vectors: what V16F_SUMS leaves, a power of two. */
#define TILE_VECTORS(rows) (4 * (rows) <= V16F_SUMS ? 4 : 2 * (rows) <= V16F_SUMS ? 2 : 1)

/* out += x m over inner indices begin .. end - 1, for rows r .. r + rows - 1 and 16 * vectors
 * columns from c on: acc = fma(x, m, acc), ascending. */
INLINE void rows_times_tile(const struct rows_times *a, const enum form form, const enum sum sum,
                            int r, const int rows, int c, const int vectors, int begin, int end)
{
    v16f acc[V16F_ROWS][4];
    const float *x = a->x + (size_t)r * a->x_stride;
    float *out = a->out + (size_t)r * a->out_stride + c;
    const int bytes = (int)element_bytes(form) * LANES * vectors;
    const size_t row_bytes = a->m.stride * element_bytes(form);
    const char *ahead = a->m.at + a->ahead + (size_t)c * element_bytes(form);
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++)
            acc[i][j] = sum == ADD ? v16f_set1(0.0f)
                                   : v16f_load(out + (size_t)i * a->out_stride + LANES * j);
    for (int k = begin; k < end; k++) {
        v16f columns[4];
        if (a->ahead)
            for (int line = 0; line < bytes; line += 64)
                __builtin_prefetch(ahead + (size_t)k * row_bytes + line, 0, SECOND_LEVEL);
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++)
            columns[j] = matrix_load(&a->m, form, (size_t)k, (size_t)(c + LANES * j));
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++) {
            v16f factor = v16f_set1(x[(size_t)i * a->x_stride + (size_t)k]);
#pragma GCC unroll 4
            for (int j = 0; j < vectors; j++)
                acc[i][j] = v16f_fma(factor, columns[j], acc[i][j]);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++) {
            float *to = out + (size_t)i * a->out_stride + LANES * j;
            v16f_store(to, sum == ADD ? v16f_add(v16f_load(to), acc[i][j]) : acc[i][j]);
        }
}

INLINE void rows_times_columns(const struct rows_times *a, const enum form form, const enum sum sum,
                               int r, const int rows, int c, int last, int begin, int end)
{
    const int wide = LANES * TILE_VECTORS(rows);
    for (; c + wide <= last; c += wide)
        rows_times_tile(a, form, sum, r, rows, c, TILE_VECTORS(rows), begin, end);
    for (; c < last; c += LANES)
        rows_times_tile(a, form, sum, r, rows, c, 1, begin, end);
}

/* For 1 .. V16F_ROWS rows from r on, and columns first .. last - 1 (multiples of 16). */
INLINE void rows_times(const struct rows_times *a, const enum form form, const enum sum sum, int r,
                       int rows, int first, int last, int begin, int end)
{
#define ROWS_TIMES(n)                                                         \
    case n:                                                                   \
        rows_times_columns(a, form, sum, r, n, first, last, begin, end);      \
        break
    switch (rows) {
        ROWS_TIMES(1);
        ROWS_TIMES(2);
        ROWS_TIMES(3);
        ROWS_TIMES(4);
#if V16F_ROWS > 4
        ROWS_TIMES(5);
        ROWS_TIMES(6);
#endif
    }
#undef ROWS_TIMES
}

#undef INLINE

#endif
