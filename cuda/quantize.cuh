/* Values to int8 blocks of 32: what quantize does, and norms and gates that prepare their own
 * output. The bits are the reference's, whether subnormal numbers are zeros or not. */
#include "common.cuh"

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

/* Rows in the forms that linear reads, all of them one behind the other. x, the rows themselves,
 * and the second three, of what the first leave over, may be null. */
struct Acts {
    float *x;       /* at a multiple of 16 bytes, if a wide form writes it */
    signed char *q; /* at a multiple of 4 */
    float *d;       /* of each 32 */
    int *sums;      /* of each 16 */
    signed char *q2;
    float *d2;
    int *sums2;
};

/* Write four values of which the first stands at i. Eight threads have a block of 32; all lanes of
 * a warp take part, and those that are not there write nothing. */
template <bool aligned>
__device__ __forceinline__ void write_acts(const Acts &acts, float4 v, long long i, bool there)
{
    if (there && acts.x)
        store4<aligned>(acts.x + i, v, 4);
    quantize_block(v, i, there, acts.q, acts.d, acts.sums);
    if (acts.q2)
        quantize_block(v, i, there, acts.q2, acts.d2, acts.sums2);
}
