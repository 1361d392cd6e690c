/* block_conv: a convolution over the rows of a block whose taps come from each row;
 * specrt/reference/block_conv.py says what it computes.
 *
 * x, add and out are [T, width] floats, dynamic is the side's [T, taps, groups], its rows
 * dynamic_width apart, base is the side's [taps, width]; add and out may be null, out may be add.
 * row_seqs is [>= T], row_offsets by sequence. Rows go to acts too as quantize writes them, width %
 * 32 = 0; where acts has no codes, x alone, if it is not null. Grid: rows in x, parts of 4 * THREADS
 * channels in y. The x4 entry wants groups of a multiple of four channels, and x, add, base and what
 * is written at multiples of 16. The steps, and so the bits where no subnormal number arises, are
 * those of specrt/_ext/host/kernels/block_conv.c.
 */
#include "quantize.cuh"

#define THREADS 256

struct Conv {
    const float *x, *dynamic, *base, *add;
    float *out;
    const int *row_seqs, *row_offsets;
    int width, dynamic_width, taps, groups;
};

/* The block's row's taps at dynamic of four channels from i on: of one group, if aligned. */
template <bool aligned>
__device__ __forceinline__ float4 taps_of(const Conv &conv, const float *dynamic, int i)
{
    const int group = conv.width / conv.groups, last = conv.width - 1;
    if (aligned) {
        const float tap = load(dynamic + i / group);
        return make_float4(tap, tap, tap, tap);
    }
    const auto one = [&](int k) { return load(dynamic + (i + k < last ? i + k : last) / group); };
    return make_float4(one(0), one(1), one(2), one(3));
}

__device__ __forceinline__ float4 added(float4 a, float4 b)
{
    return make_float4(__fadd_rn(a.x, b.x), __fadd_rn(a.y, b.y), __fadd_rn(a.z, b.z),
                       __fadd_rn(a.w, b.w));
}

/* Four channels of the block's row from i on; taps that would reach before its first row are left
 * out. */
template <bool aligned> __device__ __forceinline__ float4 convolved(const Conv &conv, int i)
{
    const int row = static_cast<int>(blockIdx.x), left = conv.width - i;
    const int known = row - load(conv.row_offsets + load(conv.row_seqs + row)) + 1;
    const int taps = known < conv.taps ? known : conv.taps;
    const float *dynamic = conv.dynamic + static_cast<long long>(row) * conv.dynamic_width;
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 4
    for (int j = 0; j < taps; j++) {
        const float *x = conv.x + static_cast<long long>(row - j) * conv.width + i;
        const float *base = conv.base + static_cast<long long>(j) * conv.width + i;
        const float4 own = taps_of<aligned>(conv, dynamic + j * conv.groups, i);
        const float4 tap = added(own, load4<aligned>(base, left)), v = load4<aligned>(x, left);
        sum = make_float4(__fmaf_rn(tap.x, v.x, sum.x), __fmaf_rn(tap.y, v.y, sum.y),
                          __fmaf_rn(tap.z, v.z, sum.z), __fmaf_rn(tap.w, v.w, sum.w));
    }
    return sum;
}

template <bool aligned>
__device__ __forceinline__ void block_conv(const Conv &conv, const Acts &acts)
{
    const int i = 4 * static_cast<int>(blockIdx.y * THREADS + threadIdx.x), left = conv.width - i;
    const bool there = left > 0;
    const long long start = static_cast<long long>(blockIdx.x) * conv.width + i;
    float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (there)
        v = convolved<aligned>(conv, i);
    if (there && conv.add)
        v = added(load4<aligned>(conv.add + start, left), v);
    if (there && conv.out)
        store4<aligned>(conv.out + start, v, left);
    if (acts.q)
        write_acts<aligned>(acts, v, start, there);
    else if (there && acts.x)
        store4<aligned>(acts.x + start, v, left);
}

extern "C" __global__ void __launch_bounds__(THREADS)
block_conv_x4(const float *x, const float *dynamic, const float *base, const float *add, float *out,
              const int *row_seqs, const int *row_offsets, int width, int dynamic_width, int taps,
              int groups, float *copy, signed char *q, float *d, int *sums, signed char *q2,
              float *d2, int *sums2)
{
    block_conv<true>({x, dynamic, base, add, out, row_seqs, row_offsets, width, dynamic_width, taps,
                      groups},
                     {copy, q, d, sums, q2, d2, sums2});
}

extern "C" __global__ void __launch_bounds__(THREADS)
block_conv_x1(const float *x, const float *dynamic, const float *base, const float *add, float *out,
              const int *row_seqs, const int *row_offsets, int width, int dynamic_width, int taps,
              int groups, float *copy, signed char *q, float *d, int *sums, signed char *q2,
              float *d2, int *sums2)
{
    block_conv<false>({x, dynamic, base, add, out, row_seqs, row_offsets, width, dynamic_width,
                       taps, groups},
                      {copy, q, d, sums, q2, d2, sums2});
}
