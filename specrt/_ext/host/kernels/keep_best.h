/* The largest of a row's logits: a NaN never wins, and equal ones go to the lowest id. */
#ifndef SPECRT_KEEP_BEST_H
#define SPECRT_KEEP_BEST_H

#include "simd.h"

/* The n first lanes of x, ids first .. first + n - 1, against the best of the ids below. */
static inline void keep_best(v16f x, int first, int n, float *best, int32_t *id)
{
    float lane[LANES];
    x = v16f_select(v16f_isnan(x), v16f_set1(-INFINITY), x);
    x = v16f_select(v16m_first(n), x, v16f_set1(-INFINITY));
    float most = v16f_reduce_max(x);
    if (!(most > *best))
        return;
    *best = most;
    v16f_store(lane, x);
    for (*id = first; lane[*id - first] != most; ++*id) {
    }
}

/* The best id of row `row` of num_rows, over parts in ascending order; 0 if nothing is above -inf. */
static inline int32_t best_of_parts(const float *best, const int32_t *ids, int num_parts,
                                    int num_rows, int row)
{
    float most = -INFINITY;
    int32_t id = 0;
    for (int part = 0; part < num_parts; part++) {
        const size_t at = (size_t)part * (size_t)num_rows + (size_t)row;
        if (best[at] > most) {
            most = best[at];
            id = ids[at];
        }
    }
    return id;
}

#endif
