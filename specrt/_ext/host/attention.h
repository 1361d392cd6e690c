#ifndef SPECRT_ATTENTION_H
#define SPECRT_ATTENTION_H

#include "kernel.h"
#include "kv.h"

struct attention_args {
    const float *q; /* [T, num_heads * dims] */
    float *out;     /* the same */
    struct kv_cache cache;
    struct kv_step step;
    int num_rows, num_heads;
    int window; /* 0: all */
    float scale;
    float softcap; /* 0: none */
    int block_rows, num_blocks; /* rows that share the reading of a page */
    int num_groups;             /* into which the chunks of a block of rows are cut */
    /* With more than one group, the results of single chunks, merged by attention_merge:
     * [T, num_heads, max_chunks, row_dims + PARTIAL_TAIL]. */
    void *const *partials;
    int max_chunks;
};

#define PARTIAL_TAIL 16 /* largest score, sum of weights, padding */
#define QUERIES 32      /* about as many queries share a page */

DECLARE_KERNEL(attention);       /* a part is a block of rows, a KV head and a group of chunks */
DECLARE_KERNEL(attention_merge); /* a part is a head of a row */

/* What one part of attention works on, in its thread's scratch. Q is the number of queries of a
 * block: its rows times the heads that share a KV head. */
struct attention_scratch {
    float *keys, *values;  /* [dims, 64], [64, row_dims]: a page as float32 */
    float *q;              /* [Q, dims] */
    float *weights;        /* [Q, 64]: scores, then their exponentials */
    float *chunk, *total;  /* [Q, row_dims + PARTIAL_TAIL] each */
    int *first, *last;     /* [Q]: the positions that a query sees are first .. last - 1 */
    int *begin, *end;      /* [Q]: those in the chunk at hand, counted from its start */
};

/* Lay it out from base, which may be NULL; returns the bytes. */
static inline size_t attention_scratch(struct attention_scratch *s, char *base, int dims,
                                       int row_dims, int queries)
{
    const size_t d = (size_t)dims, r = (size_t)row_dims, n = (size_t)queries;
    const size_t sizes[] = {d * PAGE, r * PAGE, n * d, n * PAGE, n * (r + PARTIAL_TAIL),
                            n * (r + PARTIAL_TAIL), n, n, n, n};
    void *at[10];
    size_t bytes = 0;
    for (int i = 0; i < 10; i++) {
        at[i] = base ? base + bytes : NULL;
        bytes += (4 * sizes[i] + 63) / 64 * 64;
    }
    *s = (struct attention_scratch){at[0], at[1], at[2], at[3], at[4],
                                    at[5], at[6], at[7], at[8], at[9]};
    return bytes;
}

#endif
