/* linear: a part is one tile of sixteen weight rows, the tiles of all pairs in order. */
#include "tile.h"

void KERNEL(linear)(const void *pointer, int part, void *scratch)
{
    const struct linear_args *args = pointer;
    const struct linear_pair *pair = args->pairs;
    for (int tiles; part >= (tiles = (pair->weight.num_rows + TILE_ROWS - 1) / TILE_ROWS); pair++)
        part -= tiles;
    const float *result = KERNEL(linear_tile)(&pair->weight, &args->acts, part, scratch);
    int n = tile_rows(&pair->weight, part);
    for (int t = 0; t < args->acts.num_rows; t++) {
        size_t at = (size_t)t * (size_t)pair->weight.num_rows + (size_t)part * TILE_ROWS;
        v16f x = v16f_load(result + t * LANES);
        if (args->add)
            x = v16f_add(x, v16f_load_n(args->add + at, n));
        v16f_store_n(pair->out + at, x, n);
    }
}
