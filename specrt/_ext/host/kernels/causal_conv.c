/* causal_conv: specrt/reference/causal_conv.py says what it computes. */
#include <string.h>

#include "gate.h"
#include "recurrent.h"

/* One sequence, n <= 16 channels from c on. */
ALWAYS_INLINE void convolve(const struct causal_conv_args *args, int seq, int c, int n, int kernel)
{
    const struct recurrent_step *step = &args->step;
    const int begin = step->row_offsets[seq], rows = step->row_offsets[seq + 1] - begin;
    const int before = kernel - 1, few = rows <= step->most_kept;
    const int start = step->positions[begin], slot = step->slots[seq], live = step->live[seq];
    const int logged = start - step->pending[seq];
    const size_t channels = (size_t)args->channels;
    float *tails = args->tails + (size_t)(2 * slot * before) * channels + c;
    const float *from = tails + (size_t)(live * before) * channels;
    float *to = tails + (size_t)((1 - live) * before) * channels;
    float *log = args->log + (size_t)slot * (size_t)args->log_rows * channels + c;
    float taps[MAX_CONV][LANES], window[2 * MAX_CONV][LANES]; /* the newest rows, oldest first */
    int newest = before, place = start % args->log_rows;
    for (int lane = 0; lane < n; lane++)
        for (int j = 0; j < kernel; j++)
            taps[j][lane] = args->weight[(size_t)(c + lane) * (size_t)kernel + (size_t)j];
    for (int i = 0, p = start - before; i < before; i++, p++) {
        v16f u = v16f_set1(0.0f);
        if (p >= logged)
            u = v16f_load_n(log + (size_t)(p % args->log_rows) * channels, n);
        else if (p >= 0)
            u = v16f_load_n(from + (size_t)(p - logged + before) * channels, n);
        v16f_store(window[i], u);
        if (few)
            v16f_store_n(to + (size_t)i * channels, u, n);
    }
    for (int row = 0; row < rows; row++) {
        const size_t at = (size_t)(begin + row) * channels + (size_t)c;
        const v16f u = v16f_load_n(args->u + at, n);
        v16f sum = v16f_set1(0.0f);
        if (newest == 2 * MAX_CONV) {
            memmove(window, window[newest - before], sizeof(window[0]) * (size_t)before);
            newest = before;
        }
        v16f_store(window[newest++], u);
        for (int j = 0; j < kernel; j++)
            sum = v16f_fma(v16f_load_n(taps[j], n), v16f_load(window[newest - kernel + j]), sum);
        if (few)
            v16f_store_n(log + (size_t)place * channels, u, n);
        else if (row >= rows - before)
            v16f_store_n(to + (size_t)(row - rows + before) * channels, u, n);
        place = place + 1 < args->log_rows ? place + 1 : 0;
        v16f_store_n(args->out + at, silu(sum), n);
    }
}

/* A part is CONV_CHANNELS channels of all sequences. */
void KERNEL(causal_conv)(const void *pointer, int part, void *scratch)
{
    const struct causal_conv_args *args = pointer;
    const struct recurrent_step *step = &args->step;
    const int first = part * CONV_CHANNELS, left = args->channels - first;
    const int last = first + (left < CONV_CHANNELS ? left : CONV_CHANNELS);
    (void)scratch;
    for (int seq = 0; seq < step->num_seqs; seq++)
        if (step->row_offsets[seq] < step->row_offsets[seq + 1])
            for (int c = first; c < last; c += LANES) {
                if (args->kernel == 4 && last - c >= LANES) /* of every model so far */
                    convolve(args, seq, c, LANES, 4);
                else
                    convolve(args, seq, c, last - c < LANES ? last - c : LANES, args->kernel);
            }
}
