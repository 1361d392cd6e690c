/* top_k: a part is one row; specrt/reference/top_k.py says what it computes. */
#include "linear.h"
#include "best_first.h"

/* Whether one of the n <= TOP_K_BLOCK logits could come among the best: the largest is enough. */
static int beats(const float *logits, int n, float least)
{
    v16f most = v16f_set1(-INFINITY);
    int i = 0;
    for (; i + LANES <= n; i += LANES)
        most = v16f_max(v16f_load(logits + i), most); /* a NaN gives what there was */
    if (v16f_reduce_max(most) > least)
        return 1;
    for (; i < n; i++)
        if (logits[i] > least)
            return 1;
    return 0;
}

void KERNEL(top_k)(const void *pointer, int row, void *scratch)
{
    const struct top_k_args *args = pointer;
    const int k = args->k;
    const float *logits = args->logits + (size_t)row * (size_t)args->width;
    float *values = args->values + (size_t)row * (size_t)k;
    int32_t *ids = args->ids + (size_t)row * (size_t)k;
    int found = 0;
    (void)scratch;
    for (int begin = 0; begin < args->width; begin += TOP_K_BLOCK) {
        const int end = begin + TOP_K_BLOCK < args->width ? begin + TOP_K_BLOCK : args->width;
        if (found == k && !beats(logits + begin, end - begin, values[k - 1]))
            continue;
        for (int id = begin; id < end; id++)
            found = take_in(logits[id], id, found, k, values, ids);
    }
    for (int i = 0; i < k; i++)
        values[i] = logits[ids[i]];
}
