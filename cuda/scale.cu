/* scale: out = factor x, or fma(factor, x, add); specrt/reference/scale.py says what it computes.
 *
 * x, add and out are count floats; add may be null, out may be x or add. A thread takes four values
 * that lie side by side, a block 4 * THREADS: grid ceil(count / (4 * THREADS)). The _x4 entry wants
 * count % 4 = 0 and addresses that are multiples of 16.
 */
#include "common.cuh"

#define THREADS 256

template <bool aligned>
__device__ __forceinline__ void scale(const float *x, const float *add, float *out, float factor,
                                      long long count)
{
    const long long i = 4 * (static_cast<long long>(blockIdx.x) * THREADS + threadIdx.x);
    if (i >= count)
        return;
    const int n = count - i < 4 ? static_cast<int>(count - i) : 4;
    float4 v = load4<aligned>(x + i, n);
    if (add) {
        const float4 a = load4<aligned>(add + i, n);
        v = make_float4(__fmaf_rn(factor, v.x, a.x), __fmaf_rn(factor, v.y, a.y),
                        __fmaf_rn(factor, v.z, a.z), __fmaf_rn(factor, v.w, a.w));
    } else {
        v = make_float4(__fmul_rn(factor, v.x), __fmul_rn(factor, v.y), __fmul_rn(factor, v.z),
                        __fmul_rn(factor, v.w));
    }
    store4<aligned>(out + i, v, n);
}

extern "C" __global__ void __launch_bounds__(THREADS)
scale_x4(const float *x, const float *add, float *out, float factor, long long count)
{
    scale<true>(x, add, out, factor, count);
}

extern "C" __global__ void __launch_bounds__(THREADS)
scale_x1(const float *x, const float *add, float *out, float factor, long long count)
{
    scale<false>(x, add, out, factor, count);
}
