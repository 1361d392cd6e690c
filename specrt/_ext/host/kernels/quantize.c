/* quantize: a part is one row; specrt/reference/quantize.py says what it computes. */
#include "quantize.h"

void KERNEL(quantize)(const void *pointer, int row, void *scratch)
{
    const struct quantize_args *args = pointer;
    const size_t width = (size_t)args->out.width;
    (void)scratch;
    quantize_values(args->x + (size_t)row * width, row, 0, width, &args->out);
}
