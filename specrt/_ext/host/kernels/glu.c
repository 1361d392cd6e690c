/* glu: specrt/reference/glu.py says what it computes. */
#include "gate.h"
#include "quantize.h"
#include "tile.h"

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
    float sides[2][GATED_TILES][PANEL * LANES], values[GATED_TILES * LANES];
    (void)scratch;
    for (int panel = 0; panel < num_panels(&args->acts); panel++) {
        for (int side = 0; side < 2; side++)
            for (int i = 0; i < GATED_TILES; i++)
                KERNEL(tile_times)(&args->sides[side], &args->acts, part * GATED_TILES + i, panel,
                                   sides[side][i]);
        for (int r = 0; r < panel_rows(&args->acts, panel); r++) {
            for (int i = 0; i < GATED_TILES; i++) {
                v16f g = v16f_load(sides[0][i] + r * LANES), up = v16f_load(sides[1][i] + r * LANES);
                v16f_store(values + i * LANES, gate(args->activation, g, up));
            }
            quantize_values(values, panel * PANEL + r, (size_t)part * GATED_TILES * LANES,
                            GATED_TILES * LANES, &args->out);
        }
    }
}
