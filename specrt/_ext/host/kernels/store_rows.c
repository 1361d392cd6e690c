/* store_rows: a part is one row; specrt/reference/store_rows.py says what it computes. */
#include "store_rows.h"

#include <string.h>

void KERNEL(store_rows)(const void *pointer, int row, void *scratch)
{
    const struct store_rows_args *args = pointer;
    const size_t slot = (size_t)args->slots[args->row_seqs[row]], width = (size_t)args->width;
    const size_t place = slot * (size_t)args->ring + (size_t)(args->positions[row] % args->ring);
    (void)scratch;
    memcpy(args->out + place * width, args->x + (size_t)row * width, 4 * width);
}
