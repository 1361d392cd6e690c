/* The quantised linear, and the ops that share its weights: pack, quantize, linear, head, embed. */
#ifndef SPECRT_LINEAR_H
#define SPECRT_LINEAR_H

#include "kernel.h"
#include "quant_types.h"

enum weight_type {
    TYPE_F32, TYPE_F16, TYPE_BF16,
#define X(TYPE, ...) TYPE_##TYPE,
    QUANT_TYPES(X)
#undef X
    NUM_TYPES
};

enum input_form { FORM_F32, FORM_INT8, FORM_INT8X2 };

#define TILE_ROWS 16 /* weight rows of a tile: one per lane */
#define NUM_SEGMENTS 8
#define FLOAT_BLOCK 32 /* columns that are a block of float weights; the last may be short */
#define MAX_PAIRS 8
#define PANEL 8 /* input rows that lie interleaved */

/* A matrix in tiles, as quant_types.h says; of float types, and of others that read float rows
 * (as F32), a tile is [num_cols][16] values. */
struct weight {
    const uint8_t *tiles;
    const float *bias; /* [num_rows] or NULL */
    size_t tile_bytes;
    int num_rows, num_cols;
    int type, form;
    int block; /* columns of which a segment has a whole number */
};

/* A matrix as its file has it. */
struct matrix {
    const uint8_t *raw;
    size_t row_bytes;
    int num_rows, num_cols, type;
};

/* Rows in int8 blocks of 32 by panels of PANEL rows, the last maybe of fewer. A panel begins at
 * PANEL times its number of rows' values; within, the rows' fours of q, and single d, s, sums, take
 * turns: q [K / 4][rows][4], d [K / 32][rows], ... */
struct int8_rows {
    int8_t *q;
    float *d;
    float *s;      /* d times the sum of q, of 32 */
    int32_t *sums; /* of q, of 16 */
};

/* Rows of width K in the forms that some weight reads; the other pointers are NULL. */
struct acts {
    float *x; /* [T, K] */
    struct int8_rows first, second;
    int num_rows, width;
};

#define PACK_TILES 2 /* tiles of a part */

struct pack_args {
    struct matrix from;
    struct weight to;
    uint8_t *tiles;
};

/* How rows are cut into parts: panels of rows, and those into columns, since rows of a panel share
 * cache lines of acts. */
struct row_parts {
    int num_rows, width, columns; /* of a part; a multiple of 32, or the width */
};

struct quantize_args {
    const float *x;
    struct acts out;
    struct row_parts parts;
};

struct linear_pair {
    struct weight weight;
    float *out; /* [T, num_rows] */
    int part_tiles, num_parts;
};

struct linear_args { /* a part is part_tiles tiles, those of all pairs in order */
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
    float scale, softcap;
    int num_parts;
};

#define TOP_K_BLOCK 256

struct top_k_args { /* a part is one row */
    const float *logits; /* [T, width] */
    float *values;       /* [T, k] */
    int32_t *ids;
    int width, k;
};

struct embed_args { /* a part is one row */
    struct matrix weight;
    const int32_t *tokens;
    float *out; /* [T, num_cols] */
    float scale;
};

DECLARE_KERNEL(pack);
DECLARE_KERNEL(quantize);
DECLARE_KERNEL(linear);
DECLARE_KERNEL(head);
DECLARE_KERNEL(head_reduce);
DECLARE_KERNEL(top_k);
DECLARE_KERNEL(embed);

#define PART_VALUES 4096 /* of rows in a part, about */

static inline struct row_parts row_parts(int num_rows, int width)
{
    const int rows = num_rows < PANEL ? num_rows : PANEL;
    const size_t values = (size_t)rows * (size_t)width;
    const int parts = values ? (int)((values + PART_VALUES - 1) / PART_VALUES) : 1;
    const int columns = ((width + parts - 1) / parts + 31) / 32 * 32;
    return (struct row_parts){num_rows, width, columns < width ? columns : width};
}

static inline int num_row_parts(const struct row_parts *parts)
{
    const int panels = (parts->num_rows + PANEL - 1) / PANEL;
    return panels * ((parts->width + parts->columns - 1) / parts->columns);
}

/* The rows first_row .. end_row and columns first .. end of a part. */
struct row_part {
    int first_row, end_row, first, end;
};

static inline struct row_part row_part(const struct row_parts *parts, int part)
{
    const int across = (parts->width + parts->columns - 1) / parts->columns;
    const int row = part / across * PANEL, column = part % across * parts->columns;
    const int end_row = row + PANEL, end = column + parts->columns;
    return (struct row_part){row, end_row < parts->num_rows ? end_row : parts->num_rows, column,
                             end < parts->width ? end : parts->width};
}

/* Fill in how a weight of that type, form and size lies in tiles. */
void weight_layout(struct weight *weight);

#endif
