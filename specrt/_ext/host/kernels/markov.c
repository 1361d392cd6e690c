/* markov: specrt/reference/markov.py says what it computes, markov.h how it is cut into phases. */
#include "markov.h"
#include "gate.h"
#include "keep_best.h"
#include "quantize.h"
#include "rows.h"
#include "tile.h"

/* sum + x y: lane j goes on with x[j] y[j], x[j + 16] y[j + 16], ... */
static v16f add_products(v16f sum, const float *x, const float *y, int width)
{
    for (int i = 0; i < width; i += LANES) {
        const int n = width - i < LANES ? width - i : LANES;
        sum = v16f_fma(v16f_load_n(x + i, n), v16f_load_n(y + i, n), sum);
    }
    return sum;
}

static float confidence_of(const struct markov_args *args, const float *hidden, const float *before)
{
    const int width = args->hidden_width, rank = args->predecessor.num_cols;
    const float *weights = args->confidence;
    float lanes[LANES];
    v16f sum = add_products(v16f_set1(0.0f), hidden, weights, width);
    sum = add_products(sum, before, weights + width, rank);
    v16f_store(lanes, sigmoid(v16f_set1(v16f_reduce_add(sum) + weights[width + rank])));
    return lanes[0];
}

void KERNEL(markov_rows)(const void *pointer, int b, void *scratch)
{
    const struct markov_args *args = pointer;
    const size_t at = (size_t)b * (size_t)args->num_rows + (size_t)args->row;
    int32_t token = args->tokens[args->row_offsets[b]];
    float *before = scratch;
    if (args->row) {
        token = best_of_parts(args->best, args->best_ids, args->num_parts, args->acts.num_rows, b);
        args->ids[at - 1] = token = args->names ? args->names[token] : token;
    }
    if (args->row == args->num_rows)
        return;
    KERNEL(embedded)(&args->predecessor, token, 1.0f, before);
    quantize_values(before, b, 0, (size_t)args->acts.width, &args->acts);
    if (args->confidence && args->confidences)
        args->confidences[at] =
            confidence_of(args, args->hidden + at * (size_t)args->hidden_width, before);
}

void KERNEL(markov)(const void *pointer, int part, void *scratch)
{
    const struct markov_args *args = pointer;
    const struct weight *weight = &args->successor;
    const struct acts *acts = &args->acts;
    const size_t width = (size_t)weight->num_rows, stride = width * (size_t)args->num_rows;
    const int end = (part + 1) * MARKOV_TILES;
    const int last = end < num_tiles(weight) ? end : num_tiles(weight);
    float *best = args->best + (size_t)part * (size_t)acts->num_rows, result[PANEL * LANES];
    int32_t *ids = args->best_ids + (size_t)part * (size_t)acts->num_rows;
    (void)scratch;
    for (int b = 0; b < acts->num_rows; b++) {
        best[b] = -INFINITY;
        ids[b] = 0;
    }
    for (int tile = part * MARKOV_TILES; tile < last; tile++)
        for (int panel = 0; panel < num_panels(acts); panel++) {
            const int first = tile * TILE_ROWS, n = tile_rows(weight, tile);
            KERNEL(tile_times)(weight, acts, tile, panel, result);
            for (int r = 0; r < panel_rows(acts, panel); r++) {
                const int b = panel * PANEL + r;
                float *logits = args->logits + (size_t)b * stride + (size_t)args->row * width + first;
                const v16f x = v16f_add(v16f_load_n(logits, n), v16f_load(result + r * LANES));
                v16f_store_n(logits, x, n);
                keep_best(x, first, n, best + b, ids + b);
            }
        }
}
