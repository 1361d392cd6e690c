/* One tile of linear: sixteen weight rows, a lane each, times a panel of input rows. */
#include "linear.h"
#include "simd.h"

/* x W^T (+ bias) to out, [rows of the panel][16]; lanes behind the last weight row are garbage. */
void KERNEL(tile_times)(const struct weight *weight, const struct acts *acts, int tile, int panel,
                        float *out);

static inline int num_tiles(const struct weight *weight)
{
    return (weight->num_rows + TILE_ROWS - 1) / TILE_ROWS;
}

/* How many rows of a tile exist. */
static inline int tile_rows(const struct weight *weight, int tile)
{
    int left = weight->num_rows - tile * TILE_ROWS;
    return left < TILE_ROWS ? left : TILE_ROWS;
}

static inline int num_panels(const struct acts *acts)
{
    return (acts->num_rows + PANEL - 1) / PANEL;
}

/* How many rows a panel has. */
static inline int panel_rows(const struct acts *acts, int panel)
{
    int left = acts->num_rows - panel * PANEL;
    return left < PANEL ? left : PANEL;
}
