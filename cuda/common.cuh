/* What kernels share: four values at a time, sums over a block, exp and tanh.
 *
 * exp and tanh are those of specrt/_ext/host/simd.h, step by step.
 */
#include "device.cuh"

/* 2^n x for a normal result. */
__device__ __forceinline__ float add_exponent(float x, int n)
{
    return __int_as_float(__float_as_int(x) + static_cast<int>(static_cast<unsigned>(n) << 23));
}

/* Four floats at p: in one load if aligned, else the first n, one by one, and zeros behind them. */
template <bool aligned> __device__ __forceinline__ float4 load4(const float *p, int n)
{
    if (aligned)
        return load(reinterpret_cast<const float4 *>(p));
    return make_float4(n > 0 ? load(p) : 0.0f, n > 1 ? load(p + 1) : 0.0f,
                       n > 2 ? load(p + 2) : 0.0f, n > 3 ? load(p + 3) : 0.0f);
}

/* The way back: all four if aligned, else the first n. */
template <bool aligned> __device__ __forceinline__ void store4(float *p, float4 v, int n)
{
    if (aligned) {
        store(reinterpret_cast<float4 *>(p), v);
        return;
    }
    if (n > 0)
        store(p, v.x);
    if (n > 1)
        store(p + 1, v.y);
    if (n > 2)
        store(p + 2, v.z);
    if (n > 3)
        store(p + 3, v.w);
}

/* The sum over the threads of a block, for each of them: the tree 16, 8, 4, 2, 1 over the lanes of
 * a warp, then num_warps / 2, ..., 1 over the warps. partial has num_warps floats of shared memory
 * that nobody uses; it may be used again after a barrier. */
template <int num_warps> __device__ __forceinline__ float block_sum(float value, float *partial)
{
#pragma unroll
    for (int flip = 16; flip > 0; flip /= 2)
        value = __fadd_rn(value, __shfl_xor_sync(0xffffffffu, value, flip));
    if (threadIdx.x % 32 == 0)
        store(partial + threadIdx.x / 32, value);
    __syncthreads();
    float sums[num_warps];
#pragma unroll
    for (int i = 0; i < num_warps; i++)
        sums[i] = load(partial + i);
#pragma unroll
    for (int width = num_warps / 2; width > 0; width /= 2)
#pragma unroll
        for (int i = 0; i < width; i++)
            sums[i] = __fadd_rn(sums[i], sums[i + width]);
    return sums[0];
}

/* exp(x), within 1.1 ulp: 0 below -87, inf above 88.72283, exactly 1 at 0, NaN for NaN.
 * x = n ln 2 + r with |r| <= ln 2 / 2, exp(r) = 1 + r (1 + r P(r)), n added to the exponent. */
__device__ __forceinline__ float exp_of(float x)
{
    float t = x > -88.0f ? x : -88.0f;
    t = t < 89.0f ? t : 89.0f;
    const int n = __float2int_rn(__fmul_rn(t, 0x1.715476p+0f));
    const float nf = __int2float_rn(n);
    float r = __fmaf_rn(nf, -0x1.62e400p-1f, t);
    r = __fmaf_rn(nf, -0x1.7f7d1cp-20f, r);
    float p = 1.9875691500e-4f;
    p = __fmaf_rn(p, r, 1.3981999507e-3f);
    p = __fmaf_rn(p, r, 8.3334519073e-3f);
    p = __fmaf_rn(p, r, 4.1665795894e-2f);
    p = __fmaf_rn(p, r, 1.6666665459e-1f);
    p = __fmaf_rn(p, r, 5.0000001201e-1f);
    p = __fmaf_rn(p, r, 1.0f);
    p = add_exponent(__fmaf_rn(p, r, 1.0f), n);
    p = x < -87.0f ? 0.0f : p;
    p = x > 88.72283f ? __int_as_float(0x7f800000) : p;
    return x != x ? x : p;
}

/* tanh(x), within 2 ulp, odd: x + x z P(z) with z = x x below 0.625, else
 * 1 - 2 / (exp(2 |x|) + 1). */
__device__ __forceinline__ float tanh_of(float x)
{
    const int sign = __float_as_int(x) & static_cast<int>(0x80000000u);
    const float a = __int_as_float(__float_as_int(x) ^ sign);
    const float z = __fmul_rn(a, a);
    float p = -5.70498872745e-3f;
    p = __fmaf_rn(p, z, 2.06390887954e-2f);
    p = __fmaf_rn(p, z, -5.37397155531e-2f);
    p = __fmaf_rn(p, z, 1.33314422036e-1f);
    p = __fmaf_rn(p, z, -3.33332819422e-1f);
    const float small = __fmaf_rn(__fmul_rn(p, z), a, a);
    const float e = __fadd_rn(exp_of(__fadd_rn(a, a)), 1.0f);
    const float large = __fsub_rn(1.0f, __fdiv_rn(2.0f, e));
    const int bits = __float_as_int(a < 0.625f ? small : large);
    return __int_as_float((bits & 0x7fffffff) | sign);
}
