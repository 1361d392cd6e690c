/* head: what follows the product with the vocabulary; specrt/reference/head.py says what it
 * computes.
 *
 * head_ids: keys [T, tiles], the best of every tile as linear wrote them (keys.cuh), to ids [T]. Grid:
 * rows. Shared memory: a key per warp.
 */
#include "keys.cuh"

#define THREADS 256

extern "C" __global__ void __launch_bounds__(THREADS)
head_ids(const unsigned long long *keys, int num_tiles, int *ids)
{
    const unsigned long long *row = keys + static_cast<long long>(blockIdx.x) * num_tiles;
    const unsigned long long best =
        best_key<THREADS>(row, num_tiles, shared_block<unsigned long long>());
    if (threadIdx.x == 0)
        store(ids + blockIdx.x, id_of(best));
}
