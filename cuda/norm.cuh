/* The root mean square of a block's row, and what is made of it: rms_norm and mtp_project give the
 * same bits. */
#include "quantize.cuh"

#define THREADS 256

/* 1 / sqrt(mean(x^2) + eps) for each thread; four(i) gives columns i .. i + 3 of x, and zeros behind
 * the row. Lane j of 4 * THREADS sums x[j]^2, x[j + 4 * THREADS]^2, ... by fma; thread t has lanes
 * 4 t .. 4 t + 3 and adds them as (0 + 2) + (1 + 3); block_sum adds the threads. partial has a float
 * of shared memory for each warp. */
template <class Four>
__device__ __forceinline__ float inverse_rms(Four four, int width, float eps, float *partial)
{
    float4 sums = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    for (int i = 4 * static_cast<int>(threadIdx.x); i < width; i += 4 * THREADS) {
        const float4 v = four(i);
        sums.x = __fmaf_rn(v.x, v.x, sums.x);
        sums.y = __fmaf_rn(v.y, v.y, sums.y);
        sums.z = __fmaf_rn(v.z, v.z, sums.z);
        sums.w = __fmaf_rn(v.w, v.w, sums.w);
    }
    const float lanes = __fadd_rn(__fadd_rn(sums.x, sums.z), __fadd_rn(sums.y, sums.w));
    const float sum = block_sum<THREADS / 32>(lanes, partial);
    const float mean = __fdiv_rn(sum, __int2float_rn(width));
    return __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(mean, eps)));
}

__device__ __forceinline__ float4 scaled(float4 v, float factor)
{
    return make_float4(__fmul_rn(v.x, factor), __fmul_rn(v.y, factor), __fmul_rn(v.z, factor),
                       __fmul_rn(v.w, factor));
}

__device__ __forceinline__ float4 product(float4 v, float4 w)
{
    return make_float4(__fmul_rn(v.x, w.x), __fmul_rn(v.y, w.y), __fmul_rn(v.z, w.z),
                       __fmul_rn(v.w, w.w));
}
