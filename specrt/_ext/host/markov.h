#ifndef SPECRT_MARKOV_H
#define SPECRT_MARKOV_H

#include "linear.h"

#define MARKOV_TILES 16 /* of a part of the product */

/* Two phases for each row of the blocks: markov_rows, a part of which is one sequence, notes what
 * came out of the row before and prepares the row's input; scratch is the predecessor's columns.
 * markov, a part of which is MARKOV_TILES tiles, adds the product to the logits of that row. */
struct markov_args {
    struct matrix predecessor;
    struct weight successor;
    struct acts acts;                /* [num_seqs, predecessor's columns] */
    float *logits;                   /* [num_seqs * num_rows, successor's rows] */
    const float *hidden;             /* [num_seqs * num_rows, hidden_width] */
    const float *confidence;         /* [hidden_width + predecessor's columns + 1], or NULL */
    const int32_t *names;            /* or NULL */
    const int32_t *tokens, *row_offsets;
    float *best;                     /* [parts, num_seqs] */
    int32_t *best_ids, *ids;         /* the same, [num_seqs, num_rows] */
    float *confidences;              /* [num_seqs, num_rows], or NULL */
    int hidden_width, num_rows, num_parts;
    int row; /* of each block; num_rows for what notes the last one */
};

DECLARE_KERNEL(markov);
DECLARE_KERNEL(markov_rows);

#endif
