/* The quantised linear, and the ops that share its weights: quantize, linear, head, embed. */
#ifndef SPECRT_LINEAR_H
#define SPECRT_LINEAR_H

#include "kernel.h"

/* MXFP4 counts scales below 2^-30 as zero, as linear does; MXFP4_EXACT does not. */
enum weight_type {
    TYPE_F32, TYPE_F16, TYPE_BF16,
    TYPE_Q4_0, TYPE_Q4_1, TYPE_Q5_0, TYPE_Q5_1, TYPE_Q8_0,
    TYPE_Q2_K, TYPE_Q3_K, TYPE_Q4_K, TYPE_Q5_K, TYPE_Q6_K,
    TYPE_IQ4_NL, TYPE_IQ4_XS, TYPE_IQ2_XXS, TYPE_IQ2_XS, TYPE_IQ2_S, TYPE_IQ3_XXS, TYPE_IQ3_S,
    TYPE_MXFP4, TYPE_MXFP4_EXACT,
    NUM_TYPES
};

enum input_form { FORM_F32, FORM_INT8, FORM_INT8X2 };

#define TILE_ROWS 16 /* weight rows of a tile: one per lane */
#define NUM_SEGMENTS 8
#define MAX_PAIRS 8

struct weight {
    const uint8_t *raw;
    const float *bias; /* [num_rows] or NULL */
    size_t row_bytes;
    int num_rows, num_cols;
    int type, form;
};

struct int8_rows {
    int8_t *q;     /* [T, K] */
    float *d;      /* [T, K / 32] */
    int32_t *sums; /* [T, K / 16] */
};

/* Rows of width K in the forms that some weight reads; the other pointers are NULL. */
struct acts {
    float *x; /* [T, K] */
    struct int8_rows first, second;
    int num_rows, width;
};

struct quantize_args { /* a part is one row */
    const float *x;
    struct acts out;
};

struct linear_pair {
    struct weight weight;
    float *out; /* [T, num_rows] */
};

struct linear_args { /* a part is one tile, the tiles of all pairs in order */
    struct acts acts;
    const float *add; /* [T, num_rows] of the only pair, or NULL */
    int num_pairs;
    struct linear_pair pairs[MAX_PAIRS];
};

#define HEAD_TILES 16 /* tiles of a part */

struct head_args { /* first phase: a part is HEAD_TILES tiles; second phase: one row */
    struct weight weight;
    struct acts acts;
    float *logits; /* [T, num_rows] or NULL */
    float *best;   /* [parts, T] */
    int32_t *best_ids, *ids; /* [parts, T], [T] */
    float softcap;
    int num_parts;
};

struct embed_args { /* a part is one row */
    struct weight weight;
    const int32_t *tokens;
    float *out; /* [T, num_cols] */
    float scale;
};

DECLARE_KERNEL(quantize);
DECLARE_KERNEL(linear);
DECLARE_KERNEL(head);
DECLARE_KERNEL(head_reduce);
DECLARE_KERNEL(embed);

/* The most columns of one segment, for any block length. */
static inline size_t segment_columns(int num_cols)
{
    int blocks = (num_cols + 255) / 256;
    return 256 * (size_t)((blocks + NUM_SEGMENTS - 1) / NUM_SEGMENTS);
}

/* Bytes of scratch that kernels/tile.c uses for one tile of a weight and num_rows input rows. */
static inline size_t tile_scratch(int num_cols, int num_rows)
{
    return segment_columns(num_cols) * (64 + 64 + 8) + 2 * 64 * (size_t)num_rows;
}

#endif
