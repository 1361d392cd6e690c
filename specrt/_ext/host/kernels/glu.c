/* glu: specrt/reference/glu.py says what it computes. */
#include "gated_tiles.h"

/* A part is GLU_BLOCK values of a row, or fewer at its end. */
void KERNEL(glu)(const void *pointer, int part, void *scratch)
{
    const struct glu_args *args = pointer;
    const size_t width = (size_t)args->width, parts = (width + GLU_BLOCK - 1) / GLU_BLOCK;
    const size_t row = (size_t)part / parts, first = (size_t)part % parts * GLU_BLOCK;
    const size_t count = width - first < GLU_BLOCK ? width - first : GLU_BLOCK;
    const size_t start = row * width + first;
    float *out = args->out ? args->out + start : scratch;
    for (size_t i = 0; i < count; i += LANES) {
        const int n = count - i < LANES ? (int)(count - i) : LANES;
        v16f g = v16f_load_n(args->gate + start + i, n), up = v16f_load_n(args->up + start + i, n);
        v16f_store_n(out + i, gate(args->activation, g, up), n);
    }
    quantize_values(out, (int)row, first, count, &args->acts);
}

/* A part is GATED_TILES tiles of either matrix: their products, gated, to a block of acts. */
void KERNEL(gated_linear)(const void *pointer, int part, void *scratch)
{
    const struct gated_linear_args *args = pointer;
    (void)scratch;
    for (int panel = 0; panel < num_panels(&args->acts); panel++)
        gated_tiles(args->sides, &args->acts, panel, part, args->activation, &args->out);
}
