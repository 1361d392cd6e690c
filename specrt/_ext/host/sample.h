/* sample, and what else reads whole rows of logits; specrt/reference/sampling.py says what a draw
 * is. */
#ifndef SPECRT_SAMPLE_H
#define SPECRT_SAMPLE_H

#include <math.h>
#include <string.h>

#include "kernel.h"

enum { EDIT_SEEN = 1, EDIT_ENDS = 2 };

struct draw { /* of a sequence; specrt.state.draw.DRAW */
    uint64_t seed;
    double top_p;
    float scale, least; /* 1 / temperature, 0 for greedy; log(min_p), at least -29 */
    float repetition, presence, frequency;
    int32_t top_k; /* 0 for none */
    int32_t min_total, first_edit, num_edits;
    int32_t draws; /* 0: it does not */
    int32_t unused[2];
};

struct edit { /* specrt.state.draw.EDIT */
    int32_t id;
    float bias;
    int32_t flags, count;
};

struct sample_args { /* a part is one row */
    float *logits;            /* [T, size], edited where edits say so */
    size_t stride;            /* from row to row; 0 if logits are those of the row at hand */
    const struct draw *draws; /* [B] */
    const struct edit *edits; /* of all sequences */
    const int32_t *tokens, *positions, *row_seqs; /* [T] */
    const int32_t *row_offsets;                   /* [B + 1] */
    int32_t *ids;                                 /* [T] */
    int *wrong; /* [B], zeros: T less the first row so far whose id is not the next row's token */
    int num_rows, size;
};

struct find_best_args { /* the only part is one row */
    const float *x; /* [size] */
    float *max;     /* of all, -inf if there is none */
    uint64_t *keys; /* [num_best], of the first tokens in no order: see order_key */
    int size, num_best;
};

/* Ascending keys are descending logits, then ascending ids; NaN counts as -inf, -0 as 0. */
static inline uint64_t order_key(float x, int id)
{
    uint32_t bits;
    x = x == x ? x + 0.0f : -INFINITY;
    memcpy(&bits, &x, 4);
    bits ^= bits >> 31 ? 0xFFFFFFFFu : 0x80000000u;
    return (uint64_t)~bits << 32 | (uint32_t)id;
}

static inline float key_logit(uint64_t key)
{
    uint32_t bits = ~(uint32_t)(key >> 32);
    float x;
    bits ^= bits >> 31 ? 0x80000000u : 0xFFFFFFFFu;
    memcpy(&x, &bits, 4);
    return x;
}

/* Scratch for a row of so many logits. */
static inline size_t draw_scratch(int size) { return 32 * ((size_t)size / 64 + 1) + 16 * (size_t)size; }

DECLARE_KERNEL(sample);
DECLARE_KERNEL(find_best);

#endif
