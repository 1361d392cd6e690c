/* glu: out = act(gate) * up; specrt/reference/glu.py says what it computes.
 *
 * gate, up and out are count floats; out may be gate or up. A thread takes four values that lie
 * side by side, a block 4 * THREADS: grid ceil(count / (4 * THREADS)). The _x4 entries want count
 * % 4 = 0 and addresses that are multiples of 16. The steps, and so the bits where no subnormal
 * number arises, are those of specrt/_ext/host/kernels/glu.c.
 *
 * The acts entries write what quantize makes of the result too, as in quantize.cuh; they want rows
 * of a width that is a multiple of 32, and out may be null.
 */
#include "quantize.cuh"

#define THREADS 256

struct Silu {
    static __device__ __forceinline__ float of(float g)
    {
        return __fdiv_rn(g, __fadd_rn(1.0f, exp_of(__fsub_rn(0.0f, g))));
    }
};

struct GeluTanh {
    static __device__ __forceinline__ float of(float g)
    {
        const float cubic = __fmaf_rn(0.044715f, __fmul_rn(g, g), 1.0f);
        const float t = tanh_of(__fmul_rn(__fmul_rn(0.79788456f, g), cubic));
        return __fmul_rn(__fmul_rn(0.5f, g), __fadd_rn(1.0f, t));
    }
};

struct Sigmoid {
    static __device__ __forceinline__ float of(float g)
    {
        return __fdiv_rn(1.0f, __fadd_rn(1.0f, exp_of(__fsub_rn(0.0f, g))));
    }
};

template <class Activation> __device__ __forceinline__ float4 gated(float4 g, float4 u)
{
    return make_float4(
        __fmul_rn(Activation::of(g.x), u.x), __fmul_rn(Activation::of(g.y), u.y),
        __fmul_rn(Activation::of(g.z), u.z), __fmul_rn(Activation::of(g.w), u.w));
}

template <class Activation, bool aligned>
__device__ __forceinline__ void glu(const float *gate, const float *up, float *out, long long count)
{
    const long long i = 4 * (static_cast<long long>(blockIdx.x) * THREADS + threadIdx.x);
    if (i >= count)
        return;
    const int n = count - i < 4 ? static_cast<int>(count - i) : 4;
    const float4 g = load4<aligned>(gate + i, n), u = load4<aligned>(up + i, n);
    store4<aligned>(out + i, gated<Activation>(g, u), n);
}

template <class Activation, bool aligned>
__device__ __forceinline__ void glu_acts(const float *gate, const float *up, float *out,
                                         long long count, const Acts &acts)
{
    const long long i = 4 * (static_cast<long long>(blockIdx.x) * THREADS + threadIdx.x);
    const bool there = i < count;
    float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (there)
        v = gated<Activation>(load4<aligned>(gate + i, 4), load4<aligned>(up + i, 4));
    if (there && out)
        store4<aligned>(out + i, v, 4);
    write_acts<aligned>(acts, v, i, there);
}

extern "C" __global__ void __launch_bounds__(THREADS)
glu_silu_x4(const float *gate, const float *up, float *out, long long count)
{
    glu<Silu, true>(gate, up, out, count);
}

extern "C" __global__ void __launch_bounds__(THREADS)
glu_silu_x1(const float *gate, const float *up, float *out, long long count)
{
    glu<Silu, false>(gate, up, out, count);
}

extern "C" __global__ void __launch_bounds__(THREADS)
glu_gelu_tanh_x4(const float *gate, const float *up, float *out, long long count)
{
    glu<GeluTanh, true>(gate, up, out, count);
}

extern "C" __global__ void __launch_bounds__(THREADS)
glu_gelu_tanh_x1(const float *gate, const float *up, float *out, long long count)
{
    glu<GeluTanh, false>(gate, up, out, count);
}

extern "C" __global__ void __launch_bounds__(THREADS)
glu_silu_acts_x4(const float *gate, const float *up, float *out, long long count, float *copy,
                 signed char *q, float *d, int *sums, signed char *q2, float *d2, int *sums2)
{
    glu_acts<Silu, true>(gate, up, out, count, {copy, q, d, sums, q2, d2, sums2});
}

extern "C" __global__ void __launch_bounds__(THREADS)
glu_silu_acts_x1(const float *gate, const float *up, float *out, long long count, float *copy,
                 signed char *q, float *d, int *sums, signed char *q2, float *d2, int *sums2)
{
    glu_acts<Silu, false>(gate, up, out, count, {copy, q, d, sums, q2, d2, sums2});
}

extern "C" __global__ void __launch_bounds__(THREADS)
glu_gelu_tanh_acts_x4(const float *gate, const float *up, float *out, long long count, float *copy,
                      signed char *q, float *d, int *sums, signed char *q2, float *d2, int *sums2)
{
    glu_acts<GeluTanh, true>(gate, up, out, count, {copy, q, d, sums, q2, d2, sums2});
}

extern "C" __global__ void __launch_bounds__(THREADS)
glu_gelu_tanh_acts_x1(const float *gate, const float *up, float *out, long long count, float *copy,
                      signed char *q, float *d, int *sums, signed char *q2, float *d2, int *sums2)
{
    glu_acts<GeluTanh, false>(gate, up, out, count, {copy, q, d, sums, q2, d2, sums2});
}

extern "C" __global__ void __launch_bounds__(THREADS)
glu_sigmoid_x4(const float *gate, const float *up, float *out, long long count)
{
    glu<Sigmoid, true>(gate, up, out, count);
}

extern "C" __global__ void __launch_bounds__(THREADS)
glu_sigmoid_x1(const float *gate, const float *up, float *out, long long count)
{
    glu<Sigmoid, false>(gate, up, out, count);
}

extern "C" __global__ void __launch_bounds__(THREADS)
glu_sigmoid_acts_x4(const float *gate, const float *up, float *out, long long count, float *copy,
                    signed char *q, float *d, int *sums, signed char *q2, float *d2, int *sums2)
{
    glu_acts<Sigmoid, true>(gate, up, out, count, {copy, q, d, sums, q2, d2, sums2});
}

extern "C" __global__ void __launch_bounds__(THREADS)
glu_sigmoid_acts_x1(const float *gate, const float *up, float *out, long long count, float *copy,
                    signed char *q, float *d, int *sums, signed char *q2, float *d2, int *sums2)
{
    glu_acts<Sigmoid, false>(gate, up, out, count, {copy, q, d, sums, q2, d2, sums2});
}
