#ifndef SPECRT_ATTENTION_H
#define SPECRT_ATTENTION_H

#include "kernel.h"
#include "kv.h"

struct attention_args {
    const float *q; /* [T, num_heads * dims] */
    float *out;     /* the same */
    struct kv_cache cache;
    struct kv_step step;
    const int32_t *lowest;      /* [B]: positions below have no keys */
    const int32_t *row_offsets; /* [B + 1] if rows see those behind them, else NULL */
    const float *sinks;         /* [num_heads] or NULL */
    int num_rows, num_heads;
    int window; /* 0: all */
    float scale;
    float softcap; /* 0: none */
    int block_rows, num_blocks; /* rows that share the reading of a page */
    int num_groups;             /* into which the chunks of a block of rows may be cut */
    int max_chunks;             /* that a row sees */
    /* With more than one group, the results of single chunks, [blocks, KV heads, queries of a block,
     * partial_floats], and how many groups of a block and KV head are finished: counters of the phase. */
    void *const *partials;
    int *num_finished;
};

#define QUERIES 32 /* about as many queries share a page */

/* A part is a block of rows, a KV head and a group of chunks. */
DECLARE_KERNEL(attention);

static inline size_t padded(int n) { return ((size_t)n + 15) / 16 * 16; }

/* A query's results of single chunks: largest score of each, sum of weights, values [chunks,
 * row_dims]; chunk c's stand at c % max_chunks. */
static inline size_t partial_floats(int row_dims, int max_chunks)
{
    return 2 * padded(max_chunks) + (size_t)row_dims * (size_t)max_chunks;
}

/* What one part works on, in its thread's scratch. Q is the number of queries of a block: its rows
 * times the heads that share a KV head. */
struct attention_scratch {
    float *key_scales, *value_scales; /* of a q8_0 page, [dims / 32 * 64] */
    float *q;                         /* [Q, dims] */
    float *weights;                   /* [Q, 64]: scores, then their exponentials */
    /* One chunk's results, and all merged so far: values [Q, row_dims], the largest score and the
     * sum of weights [Q]. */
    float *chunk, *chunk_top, *chunk_sum;
    float *total, *total_top, *total_sum;
    float *factors;      /* [2, max_chunks] */
    int *first, *last;   /* [Q]: the positions that a query sees are first .. last - 1 */
    int *begin, *end;    /* [Q]: those in the chunk at hand, counted from its start */
};

/* Lay it out from base, which may be NULL; returns the bytes. */
static inline size_t attention_scratch(struct attention_scratch *s, char *base, int dims,
                                       int row_dims, int queries, int max_chunks)
{
    const size_t d = (size_t)dims, r = (size_t)row_dims, n = padded(queries);
    const size_t sizes[] = {2 * d, 2 * d, n * d, n * PAGE, n * r, n, n, n * r,
                            n, n, 2 * padded(max_chunks), n, n, n, n};
    void *at[15];
    size_t bytes = 0;
    for (int i = 0; i < 15; i++) {
        at[i] = base ? base + bytes : NULL;
        bytes += (4 * sizes[i] + 63) / 64 * 64;
    }
    *s = (struct attention_scratch){at[0], at[1], at[2],  at[3],  at[4],  at[5],  at[6], at[7],
                                    at[8], at[9], at[10], at[11], at[12], at[13], at[14]};
    return bytes;
}

#endif
