/* quantize: rows to int8 in blocks of 32; specrt/reference/quantize.py says what it computes.
 *
 * x is count = T * K floats, K % 32 = 0; what is written is as in quantize.cuh. A thread has four
 * values, eight threads a block of 32, a thread block 4 * THREADS values: grid
 * ceil(count / (4 * THREADS)). The _x4 entry wants x and acts.x at multiples of 16.
 */
#include "quantize.cuh"

#define THREADS 256

template <bool aligned>
__device__ __forceinline__ void quantize(const float *x, long long count, const Acts &acts)
{
    const long long i = 4 * (static_cast<long long>(blockIdx.x) * THREADS + threadIdx.x);
    const bool there = i < count;
    float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (there)
        v = load4<aligned>(x + i, 4);
    write_acts<aligned>(acts, v, i, there);
}

extern "C" __global__ void __launch_bounds__(THREADS)
quantize_x4(const float *x, long long count, float *copy, signed char *q, float *d, int *sums,
            signed char *q2, float *d2, int *sums2)
{
    quantize<true>(x, count, {copy, q, d, sums, q2, d2, sums2});
}

extern "C" __global__ void __launch_bounds__(THREADS)
quantize_x1(const float *x, long long count, float *copy, signed char *q, float *d, int *sums,
            signed char *q2, float *d2, int *sums2)
{
    quantize<false>(x, count, {copy, q, d, sums, q2, d2, sums2});
}
