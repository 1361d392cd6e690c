/* route: specrt/reference/route.py says what it computes. */
#include "route.h"
#include "best_first.h"

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
    for (int e = 0, count = 0; e < args->num_experts; e++)
        count = take_in(logits[e], e, count, args->num_used, best, ids);
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
