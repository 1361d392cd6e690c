/* A mixture of experts: see specrt/host/moe.py for how rows lie on their way. */
#ifndef SPECRT_MOE_H
#define SPECRT_MOE_H

#include "linear.h"

#define MOE_PARTS 16384 /* of a phase over groups, about, at most: most of them may be empty */

struct expert_weights {
    struct weight first;
    size_t bytes; /* from one expert's tiles to the next one's */
};

/* Rows once per expert that they go to, those of an expert side by side. */
struct moe_groups {
    int32_t *sources, *places; /* [P]: which row each is; where pair (row, rank) is */
    int32_t *group_of;         /* [P] */
    int32_t *starts, *experts; /* of each group; one start more */
    int32_t *num_groups;
};

/* Phases over groups: parts are those of each group that there may be, in order. */
struct moe_args {
    struct expert_weights sides[2], down; /* gate and up */
    struct acts from, rows, gated;        /* T rows; P rows each, in panels of their own group */
    struct moe_groups groups;
    const int32_t *ids;                   /* [T, num_used] */
    const float *weights;                 /* [T, num_used] */
    const float *add, *shared, *shared_gate; /* [T, D], [T, D], [T]; each may be NULL */
    float *results, *out;                 /* [P, D], [T, D] */
    int num_pairs, num_used, num_experts, activation;
    int take_rows;               /* of a part that copies */
    int up_blocks, up_parts;     /* blocks of 32 of F of a part, and parts of a group */
    int down_tiles, down_parts;
    struct row_parts parts; /* of out */
};

DECLARE_KERNEL(moe_group);
DECLARE_KERNEL(moe_take);
DECLARE_KERNEL(moe_up);
DECLARE_KERNEL(moe_down);
DECLARE_KERNEL(moe);

#endif
