/* rms_norm: out = x / sqrt(mean(x^2) + eps) * weight + add; specrt/reference/rms_norm.py says what
 * it computes.
 *
 * x, add and out are [T, width] floats, weight is [width]; weight and add may be null, out may be x
 * or add. Grid T: a block is one row, so rows stand alone. Lane j of 4 * THREADS sums x[j]^2,
 * x[j + 4 * THREADS]^2, ... by fma; thread t has lanes 4 t .. 4 t + 3 and adds them as
 * (0 + 2) + (1 + 3); block_sum adds the threads. Shared memory: a float per warp. The _x4 entry
 * wants width % 4 = 0 and addresses that are multiples of 16; both give the same bits. The host has
 * 16 lanes: it agrees within rounding.
 */
#include "common.cuh"

#define THREADS 256

template <bool aligned>
__device__ __forceinline__ void rms_norm(const float *x, const float *weight, const float *add,
                                         float *out, int width, float eps)
{
    const long long start = static_cast<long long>(blockIdx.x) * width;
    const int first = 4 * static_cast<int>(threadIdx.x);
    float4 sums = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    for (int i = first; i < width; i += 4 * THREADS) {
        const float4 v = load4<aligned>(x + start + i, width - i);
        sums.x = __fmaf_rn(v.x, v.x, sums.x);
        sums.y = __fmaf_rn(v.y, v.y, sums.y);
        sums.z = __fmaf_rn(v.z, v.z, sums.z);
        sums.w = __fmaf_rn(v.w, v.w, sums.w);
    }
    const float lanes = __fadd_rn(__fadd_rn(sums.x, sums.z), __fadd_rn(sums.y, sums.w));
    const float sum = block_sum<THREADS / 32>(lanes, shared_block<float>());
    const float mean = __fdiv_rn(sum, __int2float_rn(width));
    const float factor = __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(mean, eps)));
    for (int i = first; i < width; i += 4 * THREADS) {
        float4 v = load4<aligned>(x + start + i, width - i);
        v = make_float4(__fmul_rn(v.x, factor), __fmul_rn(v.y, factor), __fmul_rn(v.z, factor),
                        __fmul_rn(v.w, factor));
        if (weight) {
            const float4 w = load4<aligned>(weight + i, width - i);
            v = make_float4(__fmul_rn(v.x, w.x), __fmul_rn(v.y, w.y), __fmul_rn(v.z, w.z),
                            __fmul_rn(v.w, w.w));
        }
        if (add) {
            const float4 a = load4<aligned>(add + start + i, width - i);
            v = make_float4(__fadd_rn(v.x, a.x), __fadd_rn(v.y, a.y), __fadd_rn(v.z, a.z),
                            __fadd_rn(v.w, a.w));
        }
        store4<aligned>(out + start + i, v, width - i);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
rms_norm_x4(const float *x, const float *weight, const float *add, float *out, int width, float eps)
{
    rms_norm<true>(x, weight, add, out, width, eps);
}

extern "C" __global__ void __launch_bounds__(THREADS)
rms_norm_x1(const float *x, const float *weight, const float *add, float *out, int width, float eps)
{
    rms_norm<false>(x, weight, add, out, width, eps);
}
