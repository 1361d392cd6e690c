/* What recurrent layers keep, and the ops on it: see specrt/state/recurrent.py. */
#ifndef SPECRT_RECURRENT_H
#define SPECRT_RECURRENT_H

#include "kernel.h"

#define MAX_CONV 64       /* rows that a row of a convolution reads */
#define CONV_CHANNELS 64  /* of a part */
#define DELTA_COLUMNS 64  /* of a part: so much of a state fits into the first level */

/* The sequences of a step; the rows of b are row_offsets[b] .. row_offsets[b + 1] - 1. */
struct recurrent_step {
    const int *positions, *row_offsets, *slots, *live, *pending;
    int num_seqs;
    int most_kept; /* rows of a window that may be taken back; all of a longer one are kept */
};

struct causal_conv_args {
    const float *u, *weight; /* [T, channels], [channels, kernel] */
    float *tails, *log, *out; /* [slots, 2, kernel - 1, channels], [slots, log_rows, channels] */
    struct recurrent_step step;
    int channels, kernel, log_rows;
};

struct gated_delta_args {
    const float *qkv, *alpha, *beta, *a, *dt_bias;
    float *states; /* [slots, 2, value heads, key_dim, value_dim] */
    float *log_k, *log_delta, *log_decay; /* [slots, log_rows, ...] */
    float *out, *states_out;              /* the latter may be NULL */
    struct recurrent_step step;
    int key_heads, value_heads, key_dim, value_dim, log_rows;
    float eps;
};

DECLARE_KERNEL(causal_conv);
DECLARE_KERNEL(gated_delta);

/* Blocks of columns of one state. */
static inline int delta_blocks(int value_dim)
{
    return (value_dim + DELTA_COLUMNS - 1) / DELTA_COLUMNS;
}

/* Bytes of a block, of q and of two k. */
static inline size_t delta_scratch(int key_dim)
{
    return sizeof(float) * (size_t)key_dim * (DELTA_COLUMNS + 3);
}

#endif
