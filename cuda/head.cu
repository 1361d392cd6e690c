/* head: what follows the product with the vocabulary; specrt/reference/head.py says what it
 * computes.
 *
 * head_ids: keys [T, tiles], the best of every tile as linear wrote them (keys.cuh), to ids [T]. Grid:
 * rows. Shared memory: a key per warp.
 */
#include "keys.cuh"

#define THREADS 256

__device__ __forceinline__ unsigned long long larger(unsigned long long a, unsigned long long b)
{
    return a > b ? a : b;
}

extern "C" __global__ void __launch_bounds__(THREADS)
head_ids(const unsigned long long *keys, int num_tiles, int *ids)
{
    unsigned long long *warps = shared_block<unsigned long long>(), best = 0;
    const unsigned long long *row = keys + static_cast<long long>(blockIdx.x) * num_tiles;
    for (int i = static_cast<int>(threadIdx.x); i < num_tiles; i += THREADS)
        best = larger(best, load(row + i));
    for (int flip = 16; flip > 0; flip /= 2)
        best = larger(best, __shfl_xor_sync(0xffffffffu, best, flip));
    if (threadIdx.x % 32 == 0)
        store(warps + threadIdx.x / 32, best);
    __syncthreads();
    if (threadIdx.x)
        return;
    for (int i = 1; i < THREADS / 32; i++)
        best = larger(best, load(warps + i));
    store(ids + blockIdx.x, id_of(best));
}
