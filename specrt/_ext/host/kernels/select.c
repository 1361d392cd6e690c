/* select: a part is one row of out; specrt/reference/select.py says what it computes. */
#include "select.h"

#include <string.h>

void KERNEL(select)(const void *pointer, int row, void *scratch)
{
    const struct select_args *args = pointer;
    const int chosen = args->index[row];
    char *out = args->out + row * args->out_stride;
    (void)scratch;
    if (chosen >= 0 && chosen < args->num_rows)
        memcpy(out, args->x + chosen * args->x_stride, args->row_bytes);
    else
        memset(out, 0, args->row_bytes);
}
