/* quantize: rows to int8 in blocks of 32; specrt/reference/quantize.py says what it computes.
 *
 * x is count = T * K floats, K % 32 = 0. q is [T, K] int8, d [T, K / 32] float, sums [T, K / 16]
 * int32; the second three, of what the first leave over, and copy, the rows themselves, may be
 * null. A thread has four values, eight threads a block of 32, a thread block 4 * THREADS values:
 * grid ceil(count / (4 * THREADS)). The _x4 entry wants x and copy at multiples of 16, all q are at
 * multiples of 4. The bits are the reference's, whether subnormal numbers are zeros or not.
 */
#include "common.cuh"

#define THREADS 256
#define BITS_INFINITY 0x7f800000
#define BITS_SMALLEST 0x1f800000 /* 2^-64 */
#define ALL_LANES 0xffffffffu

/* The bits of |x|, which order as the floats do, NaN above all. */
__device__ __forceinline__ int magnitude(float x) { return __float_as_int(x) & 0x7fffffff; }

__device__ __forceinline__ int larger(int a, int b) { return a > b ? a : b; }

__device__ __forceinline__ int rounded(float x, float inverse, bool used)
{
    return used ? __float2int_rn(__fmul_rn(x, inverse)) : 0;
}

/* What a code leaves over. */
__device__ __forceinline__ float rest(float x, int code, float scale)
{
    return __fmaf_rn(-scale, __int2float_rn(code), x);
}

/* The block that this thread and seven others share, of which it has x at i; x becomes what is left
 * over. All lanes take part; those that are not there write nothing. */
__device__ __forceinline__ void quantize_block(float4 &x, long long i, bool there, signed char *q,
                                               float *d, int *sums)
{
    int largest = larger(larger(magnitude(x.x), magnitude(x.y)),
                         larger(magnitude(x.z), magnitude(x.w)));
    for (int flip = 4; flip > 0; flip /= 2)
        largest = larger(largest, __shfl_xor_sync(ALL_LANES, largest, flip));
    const bool finite = largest < BITS_INFINITY, used = finite && largest >= BITS_SMALLEST;
    const float a = used ? __int_as_float(largest) : 1.0f;
    const float nan = __int_as_float(0x7fc00000);
    const float scale = !finite ? nan : used ? __fdiv_rn(a, 127.0f) : 0.0f;
    const float inverse = __fdiv_rn(127.0f, a);
    const int4 codes = make_int4(rounded(x.x, inverse, used), rounded(x.y, inverse, used),
                                 rounded(x.z, inverse, used), rounded(x.w, inverse, used));
    x = make_float4(rest(x.x, codes.x, scale), rest(x.y, codes.y, scale),
                    rest(x.z, codes.z, scale), rest(x.w, codes.w, scale));
    int sum = codes.x + codes.y + codes.z + codes.w;
    for (int flip = 2; flip > 0; flip /= 2)
        sum += __shfl_xor_sync(ALL_LANES, sum, flip);
    if (!there)
        return;
    const unsigned packed = (codes.x & 0xffu) | (codes.y & 0xffu) << 8 | (codes.z & 0xffu) << 16 |
                            (codes.w & 0xffu) << 24;
    store(reinterpret_cast<unsigned *>(q + i), packed);
    if (i % 16 == 0)
        store(sums + i / 16, sum);
    if (i % 32 == 0)
        store(d + i / 32, scale);
}

template <bool aligned>
__device__ __forceinline__ void quantize(const float *x, long long count, float *copy,
                                         signed char *q, float *d, int *sums, signed char *q2,
                                         float *d2, int *sums2)
{
    const long long i = 4 * (static_cast<long long>(blockIdx.x) * THREADS + threadIdx.x);
    const bool there = i < count;
    float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (there)
        v = load4<aligned>(x + i, 4);
    if (there && copy)
        store4<aligned>(copy + i, v, 4);
    quantize_block(v, i, there, q, d, sums);
    if (q2)
        quantize_block(v, i, there, q2, d2, sums2);
}

extern "C" __global__ void __launch_bounds__(THREADS)
quantize_x4(const float *x, long long count, float *copy, signed char *q, float *d, int *sums,
            signed char *q2, float *d2, int *sums2)
{
    quantize<true>(x, count, copy, q, d, sums, q2, d2, sums2);
}

extern "C" __global__ void __launch_bounds__(THREADS)
quantize_x1(const float *x, long long count, float *copy, signed char *q, float *d, int *sums,
            signed char *q2, float *d2, int *sums2)
{
    quantize<false>(x, count, copy, q, d, sums, q2, d2, sums2);
}
