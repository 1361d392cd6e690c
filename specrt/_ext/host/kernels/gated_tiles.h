/* What products that are gated at once share: a block of 32 columns of gate and up. */
#ifndef SPECRT_GATED_TILES_H
#define SPECRT_GATED_TILES_H

#include "gate.h"
#include "quantize.h"
#include "tile.h"

/* Columns from block * 32 on of act(gate h) * up h, as far as they exist, of a panel of rows. */
static inline void gated_tiles(const struct weight sides[2], const struct acts *acts, int panel,
                               int block, int activation, const struct acts *out)
{
    float results[2][GATED_TILES][PANEL * LANES], values[GATED_TILES * LANES];
    const int first = block * GATED_TILES, left = num_tiles(&sides[0]) - first;
    const int tiles = left < GATED_TILES ? left : GATED_TILES;
    const int columns = sides[0].num_rows - first * TILE_ROWS;
    const size_t count = (size_t)(columns < GATED_TILES * LANES ? columns : GATED_TILES * LANES);
    for (int side = 0; side < 2; side++)
        for (int i = 0; i < tiles; i++)
            KERNEL(tile_times)(&sides[side], acts, first + i, panel, results[side][i]);
    for (int r = 0; r < panel_rows(acts, panel); r++) {
        for (int i = 0; i < tiles; i++) {
            v16f g = v16f_load(results[0][i] + r * LANES), up = v16f_load(results[1][i] + r * LANES);
            v16f_store(values + i * LANES, gate(activation, g, up));
        }
        quantize_values(values, panel * PANEL + r, (size_t)(first * TILE_ROWS), count, out);
    }
}

#endif
