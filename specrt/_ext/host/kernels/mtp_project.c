/* mtp_project: a part is one row, as linear reads it; specrt/reference/mtp_project.py says what the
 * op computes. */
#include "draft.h"
#include "norm.h"
#include "quantize.h"
#include "rows.h"

static void normalise(float *x, const float *weight, int width, float eps)
{
    const float factor = inverse_rms(x, width, eps);
    for (int i = 0; i < width; i += LANES) {
        const int n = width - i < LANES ? width - i : LANES;
        v16f_store_n(x + i, normed(x + i, weight + i, factor, n), n);
    }
}

void KERNEL(mtp_project)(const void *pointer, int row, void *scratch)
{
    const struct mtp_project_args *args = pointer;
    const int width = args->embedding.num_cols, position = args->positions[row];
    const size_t slot = (size_t)args->slots[args->row_seqs[row]];
    const size_t place = slot * (size_t)args->ring + (size_t)((position - 1) % args->ring);
    float *token = scratch, *before = token + width;
    KERNEL(embedded)(&args->embedding, args->tokens[row], args->scale, token);
    normalise(token, args->embedding_norm, width, args->eps);
    if (position > 0)
        memcpy(before, args->hidden + place * (size_t)width, 4 * (size_t)width);
    else
        memset(before, 0, 4 * (size_t)width);
    normalise(before, args->hidden_norm, width, args->eps);
    quantize_values(token, row, 0, 2 * (size_t)width, &args->acts);
}
