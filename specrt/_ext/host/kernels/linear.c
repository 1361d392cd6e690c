/* linear: a part is a few tiles of one pair, the parts of all pairs in order. */
#include "tile.h"

void KERNEL(linear)(const void *pointer, int part, void *scratch)
{
    const struct linear_args *args = pointer;
    const struct linear_pair *pair = args->pairs;
    (void)scratch;
    for (; part >= pair->num_parts; pair++)
        part -= pair->num_parts;
    const struct weight *weight = &pair->weight;
    const int first = part * pair->part_tiles, end = first + pair->part_tiles;
    const int last = end < num_tiles(weight) ? end : num_tiles(weight);
    float result[PANEL * LANES];
    for (int tile = first; tile < last; tile++) {
        const int n = tile_rows(weight, tile);
        for (int panel = 0; panel < num_panels(&args->acts); panel++) {
            KERNEL(tile_times)(weight, &args->acts, tile, panel, result);
            for (int r = 0; r < panel_rows(&args->acts, panel); r++) {
                size_t row = (size_t)(panel * PANEL + r);
                size_t at = row * (size_t)weight->num_rows + (size_t)tile * TILE_ROWS;
                v16f x = v16f_load(result + r * LANES);
                if (args->add)
                    x = v16f_add(x, v16f_load_n(args->add + at, n));
                v16f_store_n(pair->out + at, x, n);
            }
        }
    }
}
