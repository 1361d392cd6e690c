#ifndef SPECRT_ACCEPT_H
#define SPECRT_ACCEPT_H

#include "kernel.h"

struct accept_args { /* the only part is all windows */
    const int32_t *ids, *tokens, *positions; /* [T], [>= T], [>= T] */
    const int32_t *row_offsets;              /* [num_seqs + 1] */
    int32_t *out;                            /* [num_seqs, 3] */
    int num_seqs;
};

DECLARE_KERNEL(accept);

#endif
