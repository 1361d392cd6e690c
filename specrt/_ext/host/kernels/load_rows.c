/* load_rows: specrt/reference/load_rows.py says what it computes. */
#include "load_rows.h"
#include "quantize.h"

/* Columns first .. end of what lies side by side, to out. */
static void gather(const struct load_rows_args *args, int row, int first, int end, float *out)
{
    const size_t slot = (size_t)args->slots[args->row_seqs[row]];
    const struct ring *ring = args->rings;
    for (int start = 0, next; start < end; start = next, ring++) {
        next = start + ring->width;
        const int from = start > first ? start : first, to = next < end ? next : end;
        const size_t place =
            slot * (size_t)ring->length + (size_t)(args->positions[row] % ring->length);
        if (from < to)
            memcpy(out + (from - first), ring->rows + place * (size_t)ring->width + (from - start),
                   4 * (size_t)(to - from));
    }
}

void KERNEL(load_rows)(const void *pointer, int part, void *scratch)
{
    const struct load_rows_args *args = pointer;
    const struct row_part at = row_part(&args->parts, part);
    for (int row = at.first_row; row < at.end_row; row++) {
        gather(args, row, at.first, at.end, scratch);
        quantize_values(scratch, row, (size_t)at.first, (size_t)(at.end - at.first), &args->acts);
    }
}
