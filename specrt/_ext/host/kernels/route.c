/* route: specrt/reference/route.py says what it computes. */
#include "route.h"
#include "simd.h"

/* Ids and logits of the largest, best first; only a larger logit goes before another. */
static void choose(const struct route_args *args, const float *logits, int32_t *ids, float *best)
{
    int count = 0;
    for (int e = 0; e < args->num_experts; e++) {
        const float logit = logits[e] == logits[e] ? logits[e] : -INFINITY;
        int place = count;
        if (count < args->num_used)
            count++;
        else if (logit > best[count - 1])
            place = count - 1;
        else
            continue;
        for (; place > 0 && logit > best[place - 1]; place--) {
            best[place] = best[place - 1];
            ids[place] = ids[place - 1];
        }
        best[place] = logit;
        ids[place] = e;
    }
}

/* exp(logit - largest) of all experts; returns their sum. */
static float powers_of(const struct route_args *args, const float *logits, float largest,
                       float *powers)
{
    const v16f top = v16f_set1(largest), none = v16f_set1(-INFINITY);
    v16f sum = v16f_set1(0.0f);
    for (int e = 0; e < args->num_experts; e += LANES) {
        const int n = args->num_experts - e < LANES ? args->num_experts - e : LANES;
        v16f x = v16f_load_n(logits + e, n);
        x = v16f_select(v16f_isnan(x), none, x);
        v16f power = v16f_exp_negative(v16f_sub(x, top));
        power = v16f_select(v16f_lt(x, top), power, v16f_set1(1.0f));
        v16f_store_n(powers + e, power, n);
        sum = v16f_add(sum, v16f_select(v16m_first(n), power, v16f_set1(0.0f)));
    }
    return v16f_reduce_add(sum);
}

void KERNEL(route)(const void *pointer, int row, void *scratch)
{
    const struct route_args *args = pointer;
    const float *logits = args->logits + (size_t)row * (size_t)args->num_experts;
    int32_t *ids = args->ids + (size_t)row * (size_t)args->num_used;
    float *weights = args->weights + (size_t)row * (size_t)args->num_used;
    float *powers = scratch, *best = powers + args->num_experts, total = 0.0f;
    choose(args, logits, ids, best);
    const float sum = powers_of(args, logits, best[0], powers);
    for (int r = 0; r < args->num_used; r++) {
        weights[r] = powers[ids[r]] / sum;
        total += weights[r];
    }
    if (total < 0x1p-14f)
        total = 0x1p-14f;
    for (int r = 0; r < args->num_used; r++)
        weights[r] /= total;
}
