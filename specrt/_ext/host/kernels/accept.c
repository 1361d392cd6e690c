/* accept: the only part is all windows; specrt/reference/accept.py says what it computes. */
#include "accept.h"

void KERNEL(accept)(const void *pointer, int part, void *scratch)
{
    const struct accept_args *args = pointer;
    (void)part;
    (void)scratch;
    for (int b = 0; b < args->num_seqs; b++) {
        int32_t *out = args->out + 3 * b;
        const int first = args->row_offsets[b], end = args->row_offsets[b + 1];
        int row = first;
        out[0] = out[1] = out[2] = 0;
        if (first >= end)
            continue;
        while (row + 1 < end && args->ids[row] == args->tokens[row + 1])
            row++;
        out[0] = row - first;
        out[1] = args->ids[row];
        out[2] = args->positions[first] + row - first + 1;
    }
}
