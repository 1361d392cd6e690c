/* rms_norm: specrt/reference/rms_norm.py says what it computes. */
#include "rms_norm.h"
#include "norm.h"
#include "quantize.h"

/* Each part of a row sums all of it: that is less than to wait for another thread. */
void KERNEL(rms_norm)(const void *pointer, int part, void *scratch)
{
    const struct rms_norm_args *args = pointer;
    const struct row_part at = row_part(&args->parts, part);
    for (int row = at.first_row; row < at.end_row; row++) {
        const size_t start = (size_t)row * (size_t)args->parts.width;
        const float *x = args->x + start;
        const float factor = inverse_rms(x, args->parts.width, args->eps);
        float *out = args->out ? args->out + start + at.first : scratch;
        for (int i = at.first; i < at.end; i += LANES) {
            const int n = at.end - i < LANES ? at.end - i : LANES;
            v16f v = normed(x + i, args->weight ? args->weight + i : NULL, factor, n);
            if (args->add)
                v = v16f_add(v, v16f_load_n(args->add + start + i, n));
            v16f_store_n(out + i - at.first, v, n);
        }
        quantize_values(out, row, (size_t)at.first, (size_t)(at.end - at.first), &args->acts);
    }
}
