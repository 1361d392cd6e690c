#ifndef SPECRT_STORE_ROWS_H
#define SPECRT_STORE_ROWS_H

#include "kernel.h"

struct store_rows_args { /* a part is one row */
    const float *x;                              /* [T, width] */
    const int32_t *positions, *row_seqs, *slots; /* [>= T], [>= T], [num_seqs] */
    float *out;                                  /* [slots, ring, width] */
    int ring, width;
};

DECLARE_KERNEL(store_rows);

#endif
