/* lattice: a part is one row of a block; specrt/reference/lattice.py says what it computes. */
#include "lattice.h"
#include "rows.h"
#include "simd.h"

/* x *= gate. */
static void weigh(float *x, const float *gate, int width)
{
    for (int i = 0; i < width; i += LANES) {
        const int n = width - i < LANES ? width - i : LANES;
        v16f_store_n(x + i, v16f_mul(v16f_load_n(x + i, n), v16f_load_n(gate + i, n)), n);
    }
}

/* Lane j sums x[j] y[j], x[j + 16] y[j + 16], ..., then the tree 8, 4, 2, 1. */
static float dot(const float *x, const float *y, int width)
{
    v16f sum = v16f_set1(0.0f);
    int i = 0;
    for (; i + LANES <= width; i += LANES)
        sum = v16f_fma(v16f_load(x + i), v16f_load(y + i), sum);
    if (i < width)
        sum = v16f_fma(v16f_load_n(x + i, width - i), v16f_load_n(y + i, width - i), sum);
    return v16f_reduce_add(sum);
}

static int named(const struct lattice_args *args, int id)
{
    return args->names ? args->names[id] : id;
}

void KERNEL(lattice)(const void *pointer, int part, void *scratch)
{
    const struct lattice_args *args = pointer;
    const int k = args->k, width = args->successor.num_cols;
    const int b = part / args->num_rows, t = part % args->num_rows;
    const size_t pairs = (size_t)k * (size_t)k, behind = (size_t)(args->num_rows - 1) * pairs;
    const int32_t *ids = args->ids + (size_t)part * (size_t)k;
    const float *logits = args->logits + (size_t)part * (size_t)k;
    const float *gate = args->gates + (size_t)part * (size_t)width;
    float *scores = args->scores + (size_t)b * ((size_t)k + behind);
    float *before = scratch, *after = before + width;
    if (t)
        scores += (size_t)k + (size_t)(t - 1) * pairs;
    for (int i = 0; i < k; i++)
        KERNEL(embedded)(&args->successor, named(args, ids[i]), 1.0f, after + (size_t)i * (size_t)width);
    for (int p = 0; p < (t ? k : 1); p++, scores += k) {
        const int token = t ? named(args, ids[p - k]) : args->tokens[args->row_offsets[b]];
        KERNEL(embedded)(&args->predecessor, token, 1.0f, before);
        weigh(before, gate, width);
        for (int i = 0; i < k; i++)
            scores[i] = logits[i] + dot(before, after + (size_t)i * (size_t)width, width);
    }
}
