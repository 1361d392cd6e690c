#ifndef SPECRT_LATTICE_H
#define SPECRT_LATTICE_H

#include "linear.h"

struct lattice_args { /* a part is one row of a block; scratch as lattice_scratch says */
    struct matrix predecessor, successor;
    const int32_t *ids;   /* [num_seqs * num_rows, k] */
    const float *logits;  /* likewise */
    const float *gates;   /* [num_seqs * num_rows, width] */
    const int32_t *names; /* or NULL */
    const int32_t *tokens, *row_offsets;
    float *scores; /* [num_seqs, k + k k (num_rows - 1)] */
    int num_rows, k;
};

/* Sixteen candidates' rows, the same by columns, and a predecessor's; whole fours of columns. */
static inline size_t lattice_scratch(int width)
{
    return 4 * (2 * 16 + 1) * (((size_t)width + 3) / 4 * 4);
}

DECLARE_KERNEL(lattice);

#endif
