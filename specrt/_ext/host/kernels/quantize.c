/* quantize: a part is one row; specrt/reference/quantize.py says what it computes. */
#include "quantize.h"

void KERNEL(quantize)(const void *pointer, int row, void *scratch)
{
    const struct quantize_args *args = pointer;
    size_t width = (size_t)args->out.width, start = (size_t)row * width;
    (void)scratch;
    quantize_values(args->x + start, start, width, &args->out);
}
