/* embed: a part is one row, dequantised and scaled; NaN where the id is no row. */
#include "tile.h"

void KERNEL(embed)(const void *pointer, int row, void *scratch)
{
    const struct embed_args *args = pointer;
    int width = args->weight.num_cols;
    int32_t token = args->tokens[row];
    float *out = args->out + (size_t)row * (size_t)width;
    int valid = token >= 0 && token < args->weight.num_rows;
    (void)scratch;
    if (valid)
        KERNEL(read_floats)(&args->weight, token, 0, width, out);
    for (int i = 0; i < width; i++)
        out[i] = valid ? out[i] * args->scale : NAN;
}
