/* causal_conv: silu of a causal convolution over time; specrt/reference/causal_conv.py says what it
 * computes.
 *
 * u and out are [T, channels] floats, out may be u; weight is [channels, kernel], tails is
 * [slots, 2, kernel - 1, channels], log is [slots, log_rows, channels]. A thread has one channel of
 * one sequence: grid (ceil(channels / THREADS), num_seqs). It keeps what later steps will read of
 * its channel, nothing of which the rows of this one read, and then goes from the last row to the
 * first, so that out may be u. The steps are those of specrt/_ext/host/kernels/causal_conv.c.
 */
#include "common.cuh"

#define THREADS 256

/* One channel of one sequence. */
struct Channel {
    const float *u, *tail, *log;
    int start, logged, before, log_rows;
    long long width;

    /* The input so many rows behind the step's first one. */
    __device__ __forceinline__ float at(int row) const
    {
        const int p = start + row;
        if (row >= 0)
            return load(u + row * width);
        if (p >= logged)
            return load(log + p % log_rows * width);
        return p >= 0 ? load(tail + (p - logged + before) * width) : 0.0f;
    }
};

extern "C" __global__ void __launch_bounds__(THREADS)
causal_conv(const float *u, const float *weight, float *tails, float *log, float *out,
            const int *positions, const int *row_offsets, const int *slots, const int *lives,
            const int *pendings, int channels, int kernel, int log_rows, int most_kept)
{
    const int c = static_cast<int>(blockIdx.x * THREADS + threadIdx.x);
    const int seq = static_cast<int>(blockIdx.y);
    const int begin = load(row_offsets + seq), rows = load(row_offsets + seq + 1) - begin;
    if (c >= channels || rows <= 0)
        return;
    const int start = load(positions + begin), slot = load(slots + seq), live = load(lives + seq);
    const int before = kernel - 1, first_kept = rows <= most_kept ? -before : rows - before;
    const long long width = channels, tail_size = before * width;
    tails += 2 * slot * tail_size + c;
    log += slot * (log_rows * width) + c;
    out += begin * width + c;
    weight += static_cast<long long>(c) * kernel;
    const Channel x = {u + begin * width + c, tails + live * tail_size, log, start,
                       start - load(pendings + seq), before, log_rows, width};
    float *tail = tails + (1 - live) * tail_size;
    for (int i = 0; i < before; i++)
        store(tail + i * width, x.at(first_kept + i));
    if (rows <= most_kept)
        for (int row = 0; row < rows; row++)
            store(log + (start + row) % log_rows * width, x.at(row));
    for (int row = rows - 1; row >= 0; row--) {
        float sum = 0.0f;
        for (int j = 0; j < kernel; j++)
            sum = __fmaf_rn(load(weight + j), x.at(row - before + j), sum);
        store(out + row * width,
              __fdiv_rn(sum, __fadd_rn(1.0f, exp_of(__fsub_rn(0.0f, sum)))));
    }
}
