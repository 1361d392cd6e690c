/* scale: specrt/reference/scale.py says what it computes. */
#include "scale.h"
#include "simd.h"

/* A part is SCALE_BLOCK values, or fewer at the end. */
void KERNEL(scale)(const void *pointer, int part, void *scratch)
{
    const struct scale_args *args = pointer;
    const size_t first = (size_t)part * SCALE_BLOCK, left = args->count - first;
    const size_t end = first + (left < SCALE_BLOCK ? left : SCALE_BLOCK);
    const v16f factor = v16f_set1(args->factor);
    (void)scratch;
    for (size_t i = first; i < end; i += LANES) {
        const int n = end - i < LANES ? (int)(end - i) : LANES;
        const v16f x = v16f_load_n(args->x + i, n);
        v16f v = args->add ? v16f_fma(factor, x, v16f_load_n(args->add + i, n))
                           : v16f_mul(factor, x);
        v16f_store_n(args->out + i, v, n);
    }
}
