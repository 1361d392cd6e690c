/* lattice: a part is one row of a block; specrt/reference/lattice.py says what it computes.
 *
 * A lane is a candidate. Of each pair four sums of every fourth column are added by fma, ascending,
 * and the sums as (0 + 2) + (1 + 3), as on CUDA.
 */
#include "lattice.h"
#include "rows.h"
#include "simd.h"

/* The row of an id, and zeros up to a multiple of four columns. */
static void read_book(const struct matrix *book, int id, float *row)
{
    KERNEL(embedded)(book, id, 1.0f, row);
    for (int i = book->num_cols; i % 4; i++)
        row[i] = 0.0f;
}

static int named(const struct lattice_args *args, int id)
{
    return args->names ? args->names[id] : id;
}

static void weigh(float *row, const float *gate, int width)
{
    for (int i = 0; i < width; i += LANES) {
        const int n = width - i < LANES ? width - i : LANES;
        v16f_store_n(row + i, v16f_mul(v16f_load_n(row + i, n), v16f_load_n(gate + i, n)), n);
    }
}

/* One weighted predecessor beside sixteen candidates, columns [width][16]. */
static v16f pairs_of(const float *before, const float *columns, int width)
{
    v16f sums[4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++)
        sums[j] = v16f_set1(0.0f);
    for (int i = 0; i < width; i += 4)
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++)
            sums[j] = v16f_fma(v16f_set1(before[i + j]), v16f_load(columns + LANES * (i + j)),
                               sums[j]);
    return v16f_add(v16f_add(sums[0], sums[2]), v16f_add(sums[1], sums[3]));
}

void KERNEL(lattice)(const void *pointer, int part, void *scratch)
{
    const struct lattice_args *args = pointer;
    const int k = args->k, width = args->successor.num_cols, stride = (width + 3) / 4 * 4;
    const int b = part / args->num_rows, t = part % args->num_rows;
    const size_t pairs = (size_t)k * (size_t)k, behind = (size_t)(args->num_rows - 1) * pairs;
    const int32_t *ids = args->ids + (size_t)part * (size_t)k;
    const float *logits = args->logits + (size_t)part * (size_t)k;
    const float *gate = args->gates + (size_t)part * (size_t)width;
    float *scores = args->scores + (size_t)b * ((size_t)k + behind);
    float *columns = scratch, *rows = columns + LANES * stride, *before = rows + LANES * stride;
    if (t)
        scores += (size_t)k + (size_t)(t - 1) * pairs;
    for (int first = 0; first < k; first += LANES) {
        const int n = k - first < LANES ? k - first : LANES;
        for (int i = 0; i < n; i++)
            read_book(&args->successor, named(args, ids[first + i]), rows + i * stride);
        for (int i = 0; i < stride; i += 4) /* what lies behind n rows is no one's */
            transpose_16x4(rows + i, 4 * (size_t)stride, columns + LANES * i);
        for (int p = 0; p < (t ? k : 1); p++) {
            const int id = t ? named(args, ids[p - k]) : args->tokens[args->row_offsets[b]];
            read_book(&args->predecessor, id, before);
            weigh(before, gate, width);
            const v16f sums = pairs_of(before, columns, stride);
            v16f_store_n(scores + p * k + first, v16f_add(v16f_load_n(logits + first, n), sums), n);
        }
    }
}
