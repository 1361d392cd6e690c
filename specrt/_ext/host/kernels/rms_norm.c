/* rms_norm: a part is one row; specrt/reference/rms_norm.py says what it computes. */
#include "rms_norm.h"
#include "norm.h"
#include "quantize.h"

void KERNEL(rms_norm)(const void *pointer, int row, void *scratch)
{
    const struct rms_norm_args *args = pointer;
    const int width = args->width;
    const size_t start = (size_t)row * (size_t)width;
    const float *x = args->x + start;
    float *out = args->out ? args->out + start : scratch;
    const float factor = inverse_rms(x, width, args->eps);
    for (int i = 0; i < width; i += LANES) {
        const int n = width - i < LANES ? width - i : LANES;
        v16f v = normed(x + i, args->weight ? args->weight + i : NULL, factor, n);
        if (args->add)
            v = v16f_add(v, v16f_load_n(args->add + start + i, n));
        v16f_store_n(out + i, v, n);
    }
    quantize_values(out, row, 0, (size_t)width, &args->acts);
}
