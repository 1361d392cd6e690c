/* One tile of linear: sixteen weight rows, a lane each, times all input rows. */
#include "linear.h"
#include "simd.h"

/* x W^T (+ bias) of the tile, [T][16] in scratch; lanes behind the last weight row are garbage. */
float *KERNEL(linear_tile)(const struct weight *weight, const struct acts *acts, int tile,
                           void *scratch);

/* Columns first .. first + count of one weight row, dequantised: scale * code, then + minimum. */
void KERNEL(read_floats)(const struct weight *weight, int row, int first, int count, float *out);

/* How many rows of a tile exist. */
static inline int tile_rows(const struct weight *weight, int tile)
{
    int left = weight->num_rows - tile * TILE_ROWS;
    return left < TILE_ROWS ? left : TILE_ROWS;
}
