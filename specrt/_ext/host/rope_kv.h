#ifndef SPECRT_ROPE_KV_H
#define SPECRT_ROPE_KV_H

#include "kernel.h"
#include "kv.h"

/* Rows of a part: adjacent positions share cache lines of k, so few threads should meet there. */
#define ROPE_ROWS 32

enum pairing { PAIR_NEOX, PAIR_INTERLEAVED };

struct rope_kv_args {
    float *q, *k, *v; /* [T, num_heads * dims], [T, kv heads * dims] twice */
    const float *q_norm, *k_norm; /* [dims] or NULL */
    const float *table;           /* [positions, num_pairs, 2] */
    struct kv_cache cache;
    struct kv_step step;
    int num_rows, num_heads, num_pairs, pairing;
    float eps;
};

static inline size_t rope_kv_scratch(int dims)
{
    /* cos, sin and -sin of a row, a key's codes (f16 or int8) and their scales. */
    return 4 * 5 * (((size_t)dims + 15) / 16 * 16);
}

DECLARE_KERNEL(rope_kv);

#endif
