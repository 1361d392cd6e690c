/* route: which experts a row goes to; specrt/reference/route.py says what it computes.
 *
 * logits is [T, E], ids and weights are [T, k]. A warp takes a row, k times the best key (keys.cuh)
 * below the last one. Sums over experts: a chain for each lane, which has every 32nd, then the tree
 * 16, 8, 4, 2, 1. Grid ceil(T / WARPS).
 */
#include "keys.cuh"

#define WARPS 4
#define THREADS (32 * WARPS)
#define ALL_LANES 0xffffffffu

/* NaN counts as -inf. */
__device__ __forceinline__ float logit_at(const float *logits, int expert)
{
    const float x = load(logits + expert);
    return x != x ? __int_as_float(static_cast<int>(0xff800000u)) : x;
}

/* exp(logit - largest), and 1 for the largest be it infinite. */
__device__ __forceinline__ float power_of(float logit, float largest)
{
    return logit < largest ? exp_of(__fsub_rn(logit, largest)) : 1.0f;
}

/* The best expert whose key is below the last one's, for all lanes. */
__device__ __forceinline__ unsigned long long next_key(const float *logits, int num_experts,
                                                       unsigned long long last)
{
    unsigned long long best = 0;
    for (int e = static_cast<int>(threadIdx.x) % 32; e < num_experts; e += 32) {
        const unsigned long long key = key_of(load(logits + e), e);
        if (key < last && key > best)
            best = key;
    }
    for (int flip = 16; flip > 0; flip /= 2) {
        const unsigned long long other = __shfl_xor_sync(ALL_LANES, best, flip);
        best = other > best ? other : best;
    }
    return best;
}

__device__ __forceinline__ float sum_of_powers(const float *logits, int num_experts, float largest)
{
    float sum = 0.0f;
    for (int e = static_cast<int>(threadIdx.x) % 32; e < num_experts; e += 32)
        sum = __fadd_rn(sum, power_of(logit_at(logits, e), largest));
    for (int flip = 16; flip > 0; flip /= 2)
        sum = __fadd_rn(sum, __shfl_xor_sync(ALL_LANES, sum, flip));
    return sum;
}

extern "C" __global__ void __launch_bounds__(THREADS)
route(const float *logits, int *ids, float *weights, int num_rows, int num_experts, int num_used)
{
    const int row = static_cast<int>(blockIdx.x) * WARPS + static_cast<int>(threadIdx.x) / 32;
    const bool writes = threadIdx.x % 32 == 0;
    if (row >= num_rows)
        return;
    logits += static_cast<long long>(row) * num_experts;
    ids += static_cast<long long>(row) * num_used;
    weights += static_cast<long long>(row) * num_used;
    unsigned long long key = ~0ull;
    float largest = 0.0f, sum = 0.0f, total = 0.0f;
    for (int r = 0; r < num_used; r++) {
        key = next_key(logits, num_experts, key);
        const float logit = logit_at(logits, id_of(key));
        if (r == 0) {
            largest = logit;
            sum = sum_of_powers(logits, num_experts, largest);
        }
        const float p = __fdiv_rn(power_of(logit, largest), sum);
        total = __fadd_rn(total, p);
        if (writes) {
            store(ids + r, id_of(key));
            store(weights + r, p);
        }
    }
    const float divisor = total > 0x1p-14f ? total : 0x1p-14f;
    for (int r = 0; writes && r < num_used; r++)
        store(weights + r, __fdiv_rn(load(weights + r), divisor));
}
