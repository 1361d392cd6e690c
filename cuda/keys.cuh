/* Logits as integers that order as head orders them: the larger value first, then the lower id. */
#include "common.cuh"

/* NaN counts as -inf. */
__device__ __forceinline__ unsigned long long key_of(float value, int id)
{
    const float x = value != value ? __int_as_float(static_cast<int>(0xff800000u))
                                   : __fadd_rn(value, 0.0f); /* no -0 */
    const unsigned bits = static_cast<unsigned>(__float_as_int(x));
    const unsigned ordered = bits >> 31 ? ~bits : bits | 0x80000000u;
    return static_cast<unsigned long long>(ordered) << 32 | (0xffffffffu - static_cast<unsigned>(id));
}

__device__ __forceinline__ int id_of(unsigned long long key)
{
    return static_cast<int>(0xffffffffu - static_cast<unsigned>(key));
}

/* The best of count keys, for each thread of a block; warps has room for a key of each warp. */
template <int threads>
__device__ __forceinline__ unsigned long long best_key(const unsigned long long *keys, int count,
                                                       unsigned long long *warps)
{
    unsigned long long best = 0;
    for (int i = static_cast<int>(threadIdx.x); i < count; i += threads) {
        const unsigned long long key = load(keys + i);
        best = key > best ? key : best;
    }
    for (int flip = 16; flip > 0; flip /= 2) {
        const unsigned long long key = __shfl_xor_sync(0xffffffffu, best, flip);
        best = key > best ? key : best;
    }
    if (threadIdx.x % 32 == 0)
        store(warps + threadIdx.x / 32, best);
    __syncthreads();
    for (int i = 0; i < threads / 32; i++) {
        const unsigned long long key = load(warps + i);
        best = key > best ? key : best;
    }
    return best;
}
