/* top_k: logits [T, width] to the k <= 64 best ids and values of each row, [T, k], best first;
 * specrt/reference/top_k.py says what it computes.
 *
 * Digit by digit of the keys the k-th is found, then all that are not below it are sorted. The
 * aligned entry wants width % 4 = 0 and logits at a multiple of 16. Grid: rows. Shared memory: as
 * specrt/kernels/top_k.py says.
 */
#include "keys.cuh"

#define THREADS 256
#define DIGITS 256
#define MOST 64

/* Call take(key) for this thread's part of a row. */
template <bool aligned, class Take>
__device__ __forceinline__ void each_key(const float *row, int width, Take take)
{
    for (int i = 4 * static_cast<int>(threadIdx.x); i < width; i += 4 * THREADS) {
        const float4 v = load4<aligned>(row + i, width - i);
        const float values[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int j = 0; j < 4; j++)
            if (i + j < width)
                take(key_of(values[j], i + j));
    }
}

/* What is known of the k-th key: its upper digits, and how many of the keys that share them are
 * wanted, and there. */
struct Search { unsigned long long prefix; int wanted, there; };

/* counts are of the next digit, which ends at bit shift; the thread whose digit it is tells. */
__device__ __forceinline__ void choose_digit(const int *counts, Search *found, Search known,
                                             int shift)
{
    const int digit = static_cast<int>(threadIdx.x);
    int above = 0;
    for (int i = digit + 1; i < DIGITS; i++)
        above += load(counts + i);
    const int own = load(counts + digit);
    if (above < known.wanted && known.wanted <= above + own) {
        store(&found->prefix, known.prefix | static_cast<unsigned long long>(digit) << shift);
        store(&found->wanted, known.wanted - above);
        store(&found->there, own);
    }
}

template <bool aligned>
__device__ __forceinline__ void top_k(const float *logits, int width, int k, int *ids, float *values)
{
    unsigned long long *best = shared_block<unsigned long long>();
    Search *found = reinterpret_cast<Search *>(best + MOST);
    int *counts = reinterpret_cast<int *>(found + 1), *taken = counts + DIGITS;
    const int thread = static_cast<int>(threadIdx.x);
    const float *row = logits + static_cast<long long>(blockIdx.x) * width;
    Search known{0, k, k + 1};
    for (int shift = 56; known.there > known.wanted; shift -= 8) {
        store(counts + thread, 0);
        if (thread == 0)
            store(taken, 0);
        __syncthreads();
        each_key<aligned>(row, width, [&](unsigned long long key) {
            if (shift == 56 || key >> (shift + 8) == known.prefix >> (shift + 8))
                atomicAdd(counts + (key >> shift & 255), 1);
        });
        __syncthreads();
        choose_digit(counts, found, known, shift);
        __syncthreads();
        known = Search{load(&found->prefix), load(&found->wanted), load(&found->there)};
    }
    each_key<aligned>(row, width, [&](unsigned long long key) {
        if (key >= known.prefix)
            store(best + atomicAdd(taken, 1), key);
    });
    __syncthreads();
    if (thread >= k)
        return;
    const unsigned long long own = load(best + thread);
    long long place = static_cast<long long>(blockIdx.x) * k;
    for (int i = 0; i < k; i++)
        place += load(best + i) > own;
    store(ids + place, id_of(own));
    store(values + place, load(row + id_of(own)));
}

extern "C" __global__ void __launch_bounds__(THREADS)
top_k_aligned(const float *logits, int width, int k, int *ids, float *values)
{
    top_k<true>(logits, width, k, ids, values);
}

extern "C" __global__ void __launch_bounds__(THREADS)
top_k_unaligned(const float *logits, int width, int k, int *ids, float *values)
{
    top_k<false>(logits, width, k, ids, values);
}
