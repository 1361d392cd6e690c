/* draft_token: each sequence's likeliest id and its share, noted and fed at once;
 * specrt/reference/draft_token.py says what it computes.
 *
 * ids and logits are [num_seqs, k], best first; names may be null; gates is [num_seqs]; tokens and
 * shares are [>= num_seqs, ring]; step_tokens and positions are those of the step, [>= num_seqs];
 * stop is [1]. A draft has few sequences: one block, whose warps take them in turns. A lane has an
 * exp, 32 at a time; all lanes add them ascending. Shared memory: an int per warp.
 */
#include "common.cuh"

#define WARPS 8
#define THREADS (32 * WARPS)

/* 1 / sum exp(l_i - l_0), for all lanes of a warp. */
__device__ __forceinline__ float share_of_first(const float *logits, int k)
{
    const int lane = static_cast<int>(threadIdx.x % 32);
    const float largest = load(logits);
    float total = 0.0f;
    for (int first = 0; first < k; first += 32) {
        const int i = first + lane, n = k - first < 32 ? k - first : 32;
        const float weight = i < k ? exp_of(__fsub_rn(load(logits + i), largest)) : 0.0f;
        for (int j = 0; j < n; j++)
            total = __fadd_rn(total, __shfl_sync(0xffffffffu, weight, j));
    }
    return __fdiv_rn(1.0f, total);
}

extern "C" __global__ void __launch_bounds__(THREADS)
draft_token(const int *ids, const float *logits, const int *names, const float *gates,
            int *step_tokens, int *positions, int *tokens, float *shares, int *stop, int num_seqs,
            int k, int ring, int last)
{
    int *passed = shared_block<int>();
    const int warp = static_cast<int>(threadIdx.x / 32);
    const bool writes = threadIdx.x % 32 == 0;
    int passes = 0;
    for (int b = warp; b < num_seqs; b += WARPS) {
        const float share = share_of_first(logits + static_cast<long long>(b) * k, k);
        if (!writes)
            continue;
        const int found = load(ids + static_cast<long long>(b) * k);
        const int token = names ? load(names + found) : found;
        const int at = load(positions + b) + 1;
        const long long place = static_cast<long long>(b) * ring + at % ring;
        store(tokens + place, token);
        store(shares + place, share);
        store(step_tokens + b, token);
        store(positions + b, at < last ? at : last);
        passes |= share >= load(gates + b);
    }
    if (writes)
        store(passed + warp, passes);
    __syncthreads();
    if (threadIdx.x)
        return;
    for (int i = 0; i < WARPS; i++)
        passes |= load(passed + i);
    store(stop, passes ? 0 : 1);
}
