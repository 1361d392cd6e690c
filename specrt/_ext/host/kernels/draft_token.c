/* draft_token: the only part is all sequences; specrt/reference/draft_token.py says what it
 * computes. */
#include "draft.h"
#include "simd.h"

/* 1 / sum exp(l_i - l_0), added ascending. */
static float share_of_first(const float *logits, int k)
{
    float total = 0.0f;
    for (int i = 0; i < k; i += LANES) {
        float weights[LANES];
        const int n = k - i < LANES ? k - i : LANES;
        v16f_store(weights, v16f_exp(v16f_sub(v16f_load_n(logits + i, n), v16f_set1(logits[0]))));
        for (int j = 0; j < n; j++)
            total += weights[j];
    }
    return 1.0f / total;
}

void KERNEL(draft_token)(const void *pointer, int part, void *scratch)
{
    const struct draft_token_args *args = pointer;
    int stop = 1;
    (void)part;
    (void)scratch;
    for (int b = 0; b < args->num_seqs; b++) {
        const float share = share_of_first(args->logits + (size_t)b * (size_t)args->k, args->k);
        const int32_t found = args->ids[(size_t)b * (size_t)args->k];
        const int at = args->positions[b] + 1;
        const size_t place = (size_t)b * (size_t)args->ring + (size_t)(at % args->ring);
        args->step_tokens[b] = args->tokens[place] = args->names ? args->names[found] : found;
        args->shares[place] = share;
        args->positions[b] = at < args->last ? at : args->last;
        stop &= !(share >= args->gates[b]);
    }
    *args->stop = stop;
}
