/* lattice: scores of candidates beside each candidate of the row before;
 * specrt/reference/lattice.py says what it computes.
 *
 * WEIGHT_TYPE is the predecessors' type, SUCCESSOR_TYPE the successors', both if there is no other;
 * weights are as specrt/kernels/weights.py lays them out, [.., width]. ids and logits are [rows, k],
 * gates are [rows, width] of blocks of num_rows rows; names may be null; tokens and row_offsets are
 * the step's; scores is [blocks, k + k k (num_rows - 1)]. Grid: rows in x, in y tiles of 16
 * predecessors times tiles of 16 candidates. A thread has a pair: each of four lanes adds every
 * fourth column by fma, ascending, and they are added as (0 + 2) + (1 + 3). Shared memory: 64 columns
 * of both tiles. The x4 entry wants width % 4 = 0 and gates at a multiple of 16.
 */
#include "embed.cuh"

#ifndef SUCCESSOR_TYPE
#define SUCCESSOR_TYPE WEIGHT_TYPE
#endif

#define SIDE 16
#define THREADS (SIDE * SIDE)
#define COLUMNS (4 * SIDE)
#define PITCH (COLUMNS + 4) /* 8 rows of 16 bytes meet in no bank */

struct Books {
    const char *predecessors, *successors;
    int num_predecessors, num_successors, width;
};

struct Block {
    const int *ids;
    const float *logits, *gates;
    const int *names, *tokens, *row_offsets;
    float *scores;
    int num_rows, k;

    __device__ __forceinline__ int id(long long row, int i) const
    {
        const int found = load(ids + row * k + i);
        return names ? load(names + found) : found;
    }
};

__device__ __forceinline__ float4 product(float4 v, float4 w)
{
    return make_float4(__fmul_rn(v.x, w.x), __fmul_rn(v.y, w.y), __fmul_rn(v.z, w.z),
                       __fmul_rn(v.w, w.w));
}

template <bool aligned>
__device__ __forceinline__ void lattice(const Books &books, const Block &block)
{
    const int thread = static_cast<int>(threadIdx.x), k = block.k, width = books.width;
    const int tiles = (k + SIDE - 1) / SIDE, own = thread / SIDE, other = thread % SIDE;
    const int first_before = static_cast<int>(blockIdx.y) / tiles * SIDE;
    const int first_after = static_cast<int>(blockIdx.y) % tiles * SIDE;
    const long long row = blockIdx.x, seq = row / block.num_rows;
    const int t = static_cast<int>(row % block.num_rows), num_before = t ? k : 1;
    if (first_before >= num_before)
        return;
    /* Of the rows that this thread decodes, and of the pair that it adds. */
    const bool decodes_before = first_before + own < num_before, decodes_after = first_after + own < k;
    int before_id = -1, after_id = -1;
    if (decodes_before)
        before_id = t ? block.id(row - 1, first_before + own)
                      : load(block.tokens + load(block.row_offsets + seq));
    if (decodes_after)
        after_id = block.id(row, first_after + own);
    const Token<WEIGHT_TYPE> before = {books.predecessors, before_id, books.num_predecessors, width,
                                       1.0f};
    const Token<SUCCESSOR_TYPE> after = {books.successors, after_id, books.num_successors, width,
                                         1.0f};
    float *weighted = shared_block<float>(), *plain = weighted + SIDE * PITCH;
    const float *gate = block.gates + row * width;
    float4 sums = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    for (int first = 0; first < width; first += COLUMNS) {
        const int column = first + 4 * other;
        float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f), w = v;
        if (column < width && decodes_before)
            v = product(before.four(column), load4<aligned>(gate + column, width - column));
        if (column < width && decodes_after)
            w = after.four(column);
        store(reinterpret_cast<float4 *>(weighted + own * PITCH + 4 * other), v);
        store(reinterpret_cast<float4 *>(plain + own * PITCH + 4 * other), w);
        __syncthreads();
#pragma unroll 4
        for (int i = 0; i < COLUMNS; i += 4) {
            const float4 x = load(reinterpret_cast<const float4 *>(weighted + own * PITCH + i));
            const float4 y = load(reinterpret_cast<const float4 *>(plain + other * PITCH + i));
            sums.x = __fmaf_rn(x.x, y.x, sums.x);
            sums.y = __fmaf_rn(x.y, y.y, sums.y);
            sums.z = __fmaf_rn(x.z, y.z, sums.z);
            sums.w = __fmaf_rn(x.w, y.w, sums.w);
        }
        __syncthreads();
    }
    const int p = first_before + own, c = first_after + other;
    if (p >= num_before || c >= k)
        return;
    const long long pairs = static_cast<long long>(k) * k;
    const long long place = seq * (k + pairs * (block.num_rows - 1)) + (t ? k + (t - 1) * pairs : 0);
    const float sum = __fadd_rn(__fadd_rn(sums.x, sums.z), __fadd_rn(sums.y, sums.w));
    store(block.scores + place + static_cast<long long>(p) * k + c,
          __fadd_rn(load(block.logits + row * k + c), sum));
}

#define ARGUMENTS                                                                                  \
    const char *predecessors, const char *successors, int num_predecessors, int num_successors,    \
        int width, const int *ids, const float *logits, const float *gates, const int *names,      \
        const int *tokens, const int *row_offsets, float *scores, int num_rows, int k
#define BOOKS {predecessors, successors, num_predecessors, num_successors, width}
#define BLOCK {ids, logits, gates, names, tokens, row_offsets, scores, num_rows, k}

extern "C" __global__ void __launch_bounds__(THREADS, 3)
lattice_x4(ARGUMENTS)
{
    lattice<true>(BOOKS, BLOCK);
}

extern "C" __global__ void __launch_bounds__(THREADS, 3)
lattice_x1(ARGUMENTS)
{
    lattice<false>(BOOKS, BLOCK);
}
