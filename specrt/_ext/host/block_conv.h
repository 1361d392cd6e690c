#ifndef SPECRT_BLOCK_CONV_H
#define SPECRT_BLOCK_CONV_H

#include "linear.h"

struct block_conv_args {
    const float *x, *add;        /* [T, width], the latter may be NULL */
    const float *dynamic, *base; /* of the side: [T, taps, groups], rows apart; [taps, width] */
    const int32_t *row_seqs, *row_offsets; /* [>= T], [num_seqs + 1] */
    float *out;                  /* [T, width] or NULL; may be add */
    struct acts acts;            /* of out; without forms there are none */
    struct row_parts parts;
    size_t dynamic_width; /* values from row to row of dynamic */
    int taps, groups, group; /* channels of a group */
};

DECLARE_KERNEL(block_conv);

/* Bytes of a part: a row's results, and where in sixteen groups' taps a channel's is. */
static inline size_t block_conv_scratch(const struct row_parts *parts)
{
    return (size_t)parts->columns * sizeof(float) + ((size_t)parts->columns + 15) / 16 * 16;
}

#endif
