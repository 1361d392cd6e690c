/* The largest values of a row with their ids, best first. */
#ifndef SPECRT_BEST_FIRST_H
#define SPECRT_BEST_FIRST_H

#include "simd.h"

/* Takes a value in among the count best, at most k; among equal ones whoever came first stays
 * before. NaN counts as -inf. Returns how many there are now. */
static inline int take_in(float value, int id, int count, int k, float *best, int32_t *ids)
{
    const float x = value == value ? value : -INFINITY;
    int place;
    if (count == k && !(x > best[k - 1]))
        return count;
    for (place = count < k ? count++ : k - 1; place > 0 && x > best[place - 1]; place--) {
        best[place] = best[place - 1];
        ids[place] = ids[place - 1];
    }
    best[place] = x;
    ids[place] = id;
    return count;
}

#endif
