/* What the passes of a draft head have beside those of a target: mtp_project, draft_token. */
#ifndef SPECRT_DRAFT_H
#define SPECRT_DRAFT_H

#include "linear.h"

struct mtp_project_args { /* a part is one row; scratch is 2 * width floats */
    struct matrix embedding;
    const float *embedding_norm, *hidden_norm;           /* [width] */
    const float *hidden;                                 /* [slots, ring, width] */
    const int32_t *tokens, *positions, *row_seqs, *slots; /* [>= T] thrice, [num_seqs] */
    struct acts acts;                                    /* [T, 2 * width] */
    float scale, eps;
    int ring;
};

struct draft_token_args { /* the only part is all sequences */
    const int32_t *ids; /* [num_seqs, k] */
    const float *logits;
    const int32_t *names; /* or NULL */
    const float *gates;
    int32_t *step_tokens, *positions; /* [>= num_seqs] */
    int32_t *tokens;                  /* [>= num_seqs, ring] */
    float *shares;
    int32_t *stop;
    int num_seqs, k, ring, last;
};

DECLARE_KERNEL(mtp_project);
DECLARE_KERNEL(draft_token);

#endif
