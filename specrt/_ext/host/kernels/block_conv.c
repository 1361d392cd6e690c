/* block_conv: specrt/reference/block_conv.py says what it computes. */
#include "block_conv.h"
#include "quantize.h"

/* What n <= 16 channels from c on of one row sum up. With whole groups of sixteen they share one
 * tap of the row, else places say which of the next sixteen groups' a channel takes. */
ALWAYS_INLINE v16f convolved(const struct block_conv_args *args, int row, int taps, int c, int n,
                             const int8_t *places)
{
    const size_t width = (size_t)args->parts.width, groups = (size_t)args->groups;
    const int group = c / args->group, left = args->groups - group;
    const float *x = args->x + (size_t)row * width + c, *base = args->base + c;
    const float *dynamic = args->dynamic + (size_t)row * args->dynamic_width + group;
    v16f sum = v16f_set1(0.0f);
    for (size_t j = 0; j < (size_t)taps; j++) {
        const float *own = dynamic + j * groups;
        v16f tap;
        if (places)
            tap = v16f_lookup(v16f_load_n(own, left < LANES ? left : LANES), v16i_load_i8(places));
        else
            tap = v16f_set1(*own);
        tap = v16f_add(tap, v16f_load_n(base + j * width, n));
        sum = v16f_fma(tap, v16f_load_n(x - j * width, n), sum);
    }
    return sum;
}

/* Columns of one row; taps that would reach before its block are left out. */
ALWAYS_INLINE void convolve(const struct block_conv_args *args, const struct row_part *at, int row,
                            const int8_t *places, float *out)
{
    const int known = row - args->row_offsets[args->row_seqs[row]] + 1;
    const int taps = known < args->taps ? known : args->taps;
    const float *add = args->add ? args->add + (size_t)row * (size_t)args->parts.width : NULL;
    for (int c = at->first; c < at->end; c += LANES) {
        const int n = at->end - c < LANES ? at->end - c : LANES;
        v16f sum = convolved(args, row, taps, c, n, places ? places + (c - at->first) : NULL);
        if (add)
            sum = v16f_add(v16f_load_n(add + c, n), sum);
        v16f_store_n(out + (c - at->first), sum, n);
    }
}

/* Of sixteen channels each, how many groups it lies behind the first one's. */
static void place_channels(const struct row_part *at, int group, int8_t *places)
{
    for (int c = at->first; c < at->end; c += LANES)
        for (int lane = 0, rest = c % group, place = 0; lane < LANES; lane++, rest++) {
            if (rest == group)
                rest = 0, place++;
            *places++ = (int8_t)place;
        }
}

void KERNEL(block_conv)(const void *pointer, int part, void *scratch)
{
    const struct block_conv_args *args = pointer;
    const struct row_part at = row_part(&args->parts, part);
    const int whole = args->group % LANES == 0;
    int8_t *places = (int8_t *)((float *)scratch + args->parts.columns);
    if (!whole)
        place_channels(&at, args->group, places);
    for (int row = at.first_row; row < at.end_row; row++) {
        const size_t start = (size_t)row * (size_t)args->parts.width + (size_t)at.first;
        float *out = args->out ? args->out + start : scratch;
        if (whole)
            convolve(args, &at, row, NULL, out);
        else
            convolve(args, &at, row, places, out);
        quantize_values(out, row, (size_t)at.first, (size_t)(at.end - at.first), &args->acts);
    }
}
