#ifndef SPECRT_LOAD_ROWS_H
#define SPECRT_LOAD_ROWS_H

#include "linear.h"

#define MAX_RINGS 16

struct ring {
    const float *rows; /* [slots, length, width] */
    int length, width;
};

struct load_rows_args { /* scratch is a part's columns */
    const int32_t *positions, *row_seqs, *slots; /* [>= T], [>= T], [num_seqs] */
    struct ring rings[MAX_RINGS];
    struct acts acts; /* as wide as all rings */
    struct row_parts parts;
    int num_rings;
};

DECLARE_KERNEL(load_rows);

#endif
