/* rope_kv: head norms and rotation of q and k in place, storing of k and v;
 * specrt/reference/rope_kv.py says what it computes.
 *
 * KV_TYPE is the type of the cache: F32, F16 or Q8_0. q is [T, num_heads * dims], k and v are [T, kv_heads * dims] floats, norms are [dims] or null,
 * table is [positions, num_pairs, 2]. A warp is one head of one row: the heads of q, then those of
 * k, then those of v. Grid: ceil((num_heads + 2 * kv_heads) / WARPS) in x, T in y. A lane has the
 * dims 4 lane .. 4 lane + 3, those 128 on, ... The sum of squares: each by fma, per lane ascending,
 * then the tree 16, 8, 4, 2, 1. Shared memory: 2 * num_pairs floats, rounded up to 4, and dims
 * floats, rounded up to 4, per warp.
 *
 * The _x4 entries want dims % 4 = 0, num_pairs % 2 = 0 and addresses that are multiples of 16; both
 * give the same bits. What is stored are the bits of specrt/reference/kv.py (0x7fff for a NaN in
 * f16), if no float32 is subnormal: those are zeros on a GPU. Subnormal halves are kept.
 */
#include "kv.cuh"

#define WARPS 4
#define THREADS (32 * WARPS)
#define ALL_LANES 0xffffffffu
#define BITS_INFINITY 0x7f800000
#define BITS_SMALLEST 0x1f800000 /* 2^-64 */

/* How four values are stored; the row begins at row, the scales of its page and head at scales. */
struct F32 {
    static __device__ __forceinline__ void encode(float4 x, int dim, bool there, char *row,
                                                  unsigned short *scales)
    {
        if (there)
            store(reinterpret_cast<float4 *>(row) + dim / 4, x);
    }
};

struct F16 {
    static __device__ __forceinline__ void encode(float4 x, int dim, bool there, char *row,
                                                  unsigned short *scales)
    {
        uint2 halves;
        halves.x = float_to_half_bits(x.x) | static_cast<unsigned>(float_to_half_bits(x.y)) << 16;
        halves.y = float_to_half_bits(x.z) | static_cast<unsigned>(float_to_half_bits(x.w)) << 16;
        if (there)
            store(reinterpret_cast<uint2 *>(row) + dim / 4, halves);
    }
};

struct Q8_0 {
    static __device__ __forceinline__ int magnitude(float x)
    {
        return __float_as_int(x) & 0x7fffffff;
    }
    static __device__ __forceinline__ int larger(int a, int b) { return a > b ? a : b; }
    static __device__ __forceinline__ unsigned code(float x, float inverse)
    {
        return __float2int_rn(__fmul_rn(x, inverse)) & 0xffu;
    }
    /* Eight lanes share a block of 32. */
    static __device__ __forceinline__ void encode(float4 x, int dim, bool there, char *row,
                                                  unsigned short *scales)
    {
        int largest = larger(larger(magnitude(x.x), magnitude(x.y)),
                             larger(magnitude(x.z), magnitude(x.w)));
        for (int flip = 4; flip > 0; flip /= 2)
            largest = larger(largest, __shfl_xor_sync(ALL_LANES, largest, flip));
        const bool finite = largest < BITS_INFINITY, used = finite && largest >= BITS_SMALLEST;
        const float a = used ? __int_as_float(largest) : 1.0f, inverse = __fdiv_rn(127.0f, a);
        const unsigned codes = code(x.x, inverse) | code(x.y, inverse) << 8 |
                               code(x.z, inverse) << 16 | code(x.w, inverse) << 24;
        const unsigned short scale = float_to_half_bits(used ? __fdiv_rn(a, 127.0f) : 0.0f);
        if (!there)
            return;
        store(reinterpret_cast<unsigned *>(row) + dim / 4, used ? codes : 0);
        if (dim % 32 == 0)
            store(scales + dim / 32 * PAGE, finite ? scale : static_cast<unsigned short>(0x7e00));
    }
};

struct Rotation {
    const float *angles; /* cos and sin of each pair, in shared memory */
    int num_pairs, interleaved;
};

/* What becomes of dim of a head that lies in shared memory. */
__device__ __forceinline__ float rotated(const Rotation &r, const float *head, int dim)
{
    const float own = load(head + dim);
    if (dim >= 2 * r.num_pairs)
        return own;
    const bool first = r.interleaved ? dim % 2 == 0 : dim < r.num_pairs;
    const int pair = r.interleaved ? dim / 2 : first ? dim : dim - r.num_pairs;
    const int distance = r.interleaved ? 1 : r.num_pairs;
    const float partner = load(head + (first ? dim + distance : dim - distance));
    const float2 angle = load(reinterpret_cast<const float2 *>(r.angles) + pair);
    return __fmaf_rn(partner, first ? -angle.y : angle.y, __fmul_rn(own, angle.x));
}

/* 1 / sqrt(mean(x^2) + eps) of a head. */
template <bool aligned>
__device__ __forceinline__ float inverse_rms(const float *x, int dims, float eps)
{
    float sum = 0.0f;
#pragma unroll 1
    for (int dim = 4 * (threadIdx.x % 32); dim < dims; dim += 128) {
        const float4 v = load4<aligned>(x + dim, dims - dim);
        sum = __fmaf_rn(v.x, v.x, sum);
        sum = __fmaf_rn(v.y, v.y, sum);
        sum = __fmaf_rn(v.z, v.z, sum);
        sum = __fmaf_rn(v.w, v.w, sum);
    }
    for (int flip = 16; flip > 0; flip /= 2)
        sum = __fadd_rn(sum, __shfl_xor_sync(ALL_LANES, sum, flip));
    const float mean = __fdiv_rn(sum, __int2float_rn(dims));
    return __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(mean, eps)));
}

/* Norm a head, rotate it, write it back. */
template <bool aligned>
__device__ __forceinline__ void norm_and_rotate(float *x, int dims, const float *norm, float eps,
                                                const Rotation &rotation, float *head)
{
    const float factor = norm ? inverse_rms<aligned>(x, dims, eps) : 1.0f;
#pragma unroll 1
    for (int dim = 4 * (threadIdx.x % 32); dim < dims; dim += 128) {
        float4 v = load4<aligned>(x + dim, dims - dim);
        if (norm) {
            const float4 w = load4<aligned>(norm + dim, dims - dim);
            v = make_float4(__fmul_rn(__fmul_rn(v.x, factor), w.x),
                            __fmul_rn(__fmul_rn(v.y, factor), w.y),
                            __fmul_rn(__fmul_rn(v.z, factor), w.z),
                            __fmul_rn(__fmul_rn(v.w, factor), w.w));
        }
        store(reinterpret_cast<float4 *>(head + dim), v);
    }
    __syncwarp();
#pragma unroll 1
    for (int dim = 4 * (threadIdx.x % 32); dim < dims; dim += 128) {
        float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        v.x = rotated(rotation, head, dim);
        v.y = rotated(rotation, head, dim + 1);
        if (aligned || dim + 2 < dims) {
            v.z = rotated(rotation, head, dim + 2);
            v.w = rotated(rotation, head, dim + 3);
        }
        store4<aligned>(x + dim, v, dims - dim);
    }
}

/* Store a head in its row of the cache; all lanes go through it together. */
template <class Type, bool aligned>
__device__ __forceinline__ void encode(const float *x, int dims, char *row, unsigned short *scales)
{
#pragma unroll 1
    for (int start = 0; start < dims; start += 128) {
        const int dim = start + 4 * static_cast<int>(threadIdx.x % 32);
        const bool there = dim < dims;
        float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (there)
            v = load4<aligned>(x + dim, dims - dim);
        Type::encode(v, dim, there, row, scales);
    }
}

template <class Type, bool aligned>
__device__ __forceinline__ void
rope_kv(float *q, float *k, float *v, int num_heads, int kv_heads, int dims, const float *q_norm,
        const float *k_norm, float eps, const float *table, int num_pairs, int interleaved,
        char *k_cache, char *v_cache, unsigned short *k_scale, unsigned short *v_scale,
        int row_bytes, const Step &step)
{
    const int row = static_cast<int>(blockIdx.y), position = load(step.positions + row);
    const int padded_angles = (2 * num_pairs + 3) / 4 * 4, padded_dims = (dims + 3) / 4 * 4;
    float *angles = shared_block<float>();
#pragma unroll 1
    for (int i = 4 * threadIdx.x; i < 2 * num_pairs; i += 4 * THREADS) {
        const float *from = table + static_cast<long long>(position) * 2 * num_pairs + i;
        store(reinterpret_cast<float4 *>(angles + i), load4<aligned>(from, 2 * num_pairs - i));
    }
    __syncthreads();
    const int warp = static_cast<int>(threadIdx.x / 32);
    int head = static_cast<int>(blockIdx.x) * WARPS + warp;
    if (head >= num_heads + 2 * kv_heads)
        return;
    const Rotation rotation = {angles, num_pairs, interleaved};
    float *own = angles + padded_angles + warp * padded_dims;
    if (head < num_heads) {
        q += (static_cast<long long>(row) * num_heads + head) * dims;
        norm_and_rotate<aligned>(q, dims, q_norm, eps, rotation, own);
        return;
    }
    head -= num_heads;
    const bool is_key = head < kv_heads;
    head = is_key ? head : head - kv_heads;
    float *x = (is_key ? k : v) + (static_cast<long long>(row) * kv_heads + head) * dims;
    if (is_key)
        norm_and_rotate<aligned>(x, dims, k_norm, eps, rotation, own);
    const int page = page_of(step, load(step.row_seqs + row), position / PAGE);
    const long long block = static_cast<long long>(page) * kv_heads + head;
    char *stored = (is_key ? k_cache : v_cache) + (block * PAGE + position % PAGE) * row_bytes;
    unsigned short *scales = (is_key ? k_scale : v_scale) + block * (dims / 32) * PAGE;
    encode<Type, aligned>(x, dims, stored, scales + position % PAGE);
}

#define PARAMETERS                                                                               \
    float *q, float *k, float *v, int num_heads, int kv_heads, int dims, const float *q_norm,    \
        const float *k_norm, float eps, const float *table, int num_pairs, int interleaved,      \
        char *k_cache, char *v_cache, unsigned short *k_scale, unsigned short *v_scale,          \
        int row_bytes, const int *positions, const int *row_seqs, const int *pages,              \
        int table_width, int ring_pages
#define ARGUMENTS                                                                                \
    q, k, v, num_heads, kv_heads, dims, q_norm, k_norm, eps, table, num_pairs, interleaved,      \
        k_cache, v_cache, k_scale, v_scale, row_bytes,                                           \
        Step{positions, row_seqs, pages, table_width, ring_pages}

extern "C" __global__ void __launch_bounds__(THREADS)
rope_kv_x4(PARAMETERS)
{
    rope_kv<KV_TYPE, true>(ARGUMENTS);
}

extern "C" __global__ void __launch_bounds__(THREADS)
rope_kv_x1(PARAMETERS)
{
    rope_kv<KV_TYPE, false>(ARGUMENTS);
}
