/* rms_norm: out = x / sqrt(mean(x^2) + eps) * weight + add; specrt/reference/rms_norm.py says what
 * it computes.
 *
 * x, add and out are [T, width] floats, weight is [width]; weight and add may be null, out may be x
 * or add. Grid T: a block is one row, so rows stand alone; norm.cuh says in which order it is
 * summed. Shared memory: a float per warp. The _x4 entries want width % 4 = 0 and addresses that
 * are multiples of 16; both give the same bits. The host has 16 lanes: it agrees within rounding.
 *
 * The acts entries write what quantize makes of the result too, as in quantize.cuh; they want
 * width % 32 = 0, and out may be null.
 */
#include "norm.cuh"

struct Rows {
    const float *x, *weight, *add;
    float *out;
    int width;
    float eps;
};

template <bool aligned> __device__ __forceinline__ float factor_of(const Rows &r, const float *x)
{
    return inverse_rms([&](int i) { return load4<aligned>(x + i, r.width - i); }, r.width, r.eps,
                       shared_block<float>());
}

/* The four results at column i of the row at start. */
template <bool aligned>
__device__ __forceinline__ float4 normed(const Rows &r, long long start, int i, float factor)
{
    float4 v = scaled(load4<aligned>(r.x + start + i, r.width - i), factor);
    if (r.weight)
        v = product(v, load4<aligned>(r.weight + i, r.width - i));
    if (r.add) {
        const float4 a = load4<aligned>(r.add + start + i, r.width - i);
        v = make_float4(__fadd_rn(v.x, a.x), __fadd_rn(v.y, a.y), __fadd_rn(v.z, a.z),
                        __fadd_rn(v.w, a.w));
    }
    return v;
}

template <bool aligned> __device__ __forceinline__ void rms_norm(const Rows &r)
{
    const long long start = static_cast<long long>(blockIdx.x) * r.width;
    const float factor = factor_of<aligned>(r, r.x + start);
    for (int i = 4 * static_cast<int>(threadIdx.x); i < r.width; i += 4 * THREADS)
        store4<aligned>(r.out + start + i, normed<aligned>(r, start, i, factor), r.width - i);
}

template <bool aligned>
__device__ __forceinline__ void rms_norm_acts(const Rows &r, const Acts &acts)
{
    const long long start = static_cast<long long>(blockIdx.x) * r.width;
    const float factor = factor_of<aligned>(r, r.x + start);
    for (int first = 0; first < r.width; first += 4 * THREADS) { /* with all lanes of a warp */
        const int i = first + 4 * static_cast<int>(threadIdx.x);
        const bool there = i < r.width;
        float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (there)
            v = normed<aligned>(r, start, i, factor);
        if (there && r.out)
            store4<aligned>(r.out + start + i, v, 4);
        write_acts<aligned>(acts, v, start + i, there);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
rms_norm_x4(const float *x, const float *weight, const float *add, float *out, int width, float eps)
{
    rms_norm<true>({x, weight, add, out, width, eps});
}

extern "C" __global__ void __launch_bounds__(THREADS)
rms_norm_x1(const float *x, const float *weight, const float *add, float *out, int width, float eps)
{
    rms_norm<false>({x, weight, add, out, width, eps});
}

extern "C" __global__ void __launch_bounds__(THREADS)
rms_norm_acts_x4(const float *x, const float *weight, const float *add, float *out, int width,
                 float eps, float *copy, signed char *q, float *d, int *sums, signed char *q2,
                 float *d2, int *sums2)
{
    rms_norm_acts<true>({x, weight, add, out, width, eps}, {copy, q, d, sums, q2, d2, sums2});
}

extern "C" __global__ void __launch_bounds__(THREADS)
rms_norm_acts_x1(const float *x, const float *weight, const float *add, float *out, int width,
                 float eps, float *copy, signed char *q, float *d, int *sums, signed char *q2,
                 float *d2, int *sums2)
{
    rms_norm_acts<false>({x, weight, add, out, width, eps}, {copy, q, d, sums, q2, d2, sums2});
}
