/* head: logits of HEAD_TILES tiles with their largest, then the largest of all parts.
 *
 * A NaN never wins and equal logits go to the lowest id: tiles, lanes and parts ascend, and only a
 * larger logit replaces the best so far. If nothing is above -inf the id is 0.
 */
#include "keep_best.h"
#include "tile.h"

void KERNEL(head)(const void *pointer, int part, void *scratch)
{
    const struct head_args *args = pointer;
    const struct weight *weight = &args->weight;
    const struct acts *acts = &args->acts;
    const int end = (part + 1) * HEAD_TILES;
    const int last = end < num_tiles(weight) ? end : num_tiles(weight);
    float *best = args->best + (size_t)part * (size_t)acts->num_rows, result[PANEL * LANES];
    int32_t *ids = args->best_ids + (size_t)part * (size_t)acts->num_rows;
    const v16f scale = v16f_set1(args->scale), cap = v16f_set1(args->softcap);
    (void)scratch;
    for (int t = 0; t < acts->num_rows; t++) {
        best[t] = -INFINITY;
        ids[t] = 0;
    }
    for (int tile = part * HEAD_TILES; tile < last; tile++)
        for (int panel = 0; panel < num_panels(acts); panel++) {
            const int first = tile * TILE_ROWS, n = tile_rows(weight, tile);
            KERNEL(tile_times)(weight, acts, tile, panel, result);
            for (int r = 0; r < panel_rows(acts, panel); r++) {
                const int t = panel * PANEL + r;
                v16f x = v16f_load(result + r * LANES);
                if (args->scale != 1.0f)
                    x = v16f_mul(scale, x);
                if (args->softcap > 0)
                    x = v16f_mul(cap, v16f_tanh(v16f_div(x, cap)));
                if (args->logits)
                    v16f_store_n(args->logits + (size_t)t * (size_t)weight->num_rows + first, x, n);
                keep_best(x, first, n, best + t, ids + t);
            }
        }
}

void KERNEL(head_reduce)(const void *pointer, int row, void *scratch)
{
    const struct head_args *args = pointer;
    (void)scratch;
    args->ids[row] = best_of_parts(args->best, args->best_ids, args->num_parts, args->acts.num_rows,
                                   row);
}
