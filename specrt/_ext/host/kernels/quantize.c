/* quantize: specrt/reference/quantize.py says what it computes. */
#include "quantize.h"

void KERNEL(quantize)(const void *pointer, int part, void *scratch)
{
    const struct quantize_args *args = pointer;
    const struct row_part at = row_part(&args->parts, part);
    (void)scratch;
    for (int row = at.first_row; row < at.end_row; row++) {
        const size_t start = (size_t)row * (size_t)args->parts.width + (size_t)at.first;
        quantize_values(args->x + start, row, (size_t)at.first, (size_t)(at.end - at.first),
                        &args->out);
    }
}
