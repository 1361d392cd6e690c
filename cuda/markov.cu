/* markov: ids of blocks row by row, each row's logits biased by the id before it;
 * specrt/reference/markov.py says what it computes.
 *
 * Of each of gridDim.x blocks of num_rows rows a row is prepared; linear then adds the product with
 * the successors to its logits and leaves keys (keys.cuh), of which the launch for the row behind
 * finds the best: it notes that id, its name where there are names, and goes on with it. Row 0
 * begins with the step's token, and row num_rows only notes. WEIGHT_TYPE is the predecessors' type;
 * weights are as specrt/kernels/weights.py lays them out, [.., width]. keys is [blocks, num_tiles],
 * ids and confidences are [blocks, num_rows], hidden is [blocks * num_rows, hidden_width], confidence
 * [hidden_width + width + 1]; names, confidence and confidences may be null, the last two together.
 * acts are as in quantize.cuh; where they have no codes, x alone. A block is one sequence. Shared
 * memory: a key per warp. The x4 entry wants both widths % 4 = 0 and floats at multiples of 16.
 */
#include "embed.cuh"
#include "keys.cuh"
#include "quantize.cuh"

#define THREADS 256

struct Block {
    const unsigned long long *keys;
    const int *names, *tokens, *row_offsets;
    int *ids;
    int num_tiles, num_rows, row;
};

struct Confidence {
    const float *hidden, *weights;
    float *out;
    int hidden_width;
};

/* The id before this row, noted if it is one of the block's; for each thread. */
__device__ __forceinline__ int id_before(const Block &block, unsigned long long *warps)
{
    if (block.row == 0)
        return load(block.tokens + load(block.row_offsets + blockIdx.x));
    const unsigned long long *keys =
        block.keys + static_cast<long long>(blockIdx.x) * block.num_tiles;
    const unsigned long long best = best_key<THREADS>(keys, block.num_tiles, warps);
    const int found = id_of(best), id = block.names ? load(block.names + found) : found;
    if (threadIdx.x == 0)
        store(block.ids + static_cast<long long>(blockIdx.x) * block.num_rows + block.row - 1, id);
    return id;
}

__device__ __forceinline__ float4 fma4(float4 v, float4 w, float4 sums)
{
    return make_float4(__fmaf_rn(v.x, w.x, sums.x), __fmaf_rn(v.y, w.y, sums.y),
                       __fmaf_rn(v.z, w.z, sums.z), __fmaf_rn(v.w, w.w, sums.w));
}

/* The predecessor's row into acts. */
template <class Type, bool aligned>
__device__ __forceinline__ void prepare(const Token<Type> &token, const Acts &acts)
{
    const long long start = static_cast<long long>(blockIdx.x) * token.width;
    for (int first = 0; first < token.width; first += 4 * THREADS) { /* with all lanes of a warp */
        const int i = first + 4 * static_cast<int>(threadIdx.x);
        const bool there = i < token.width;
        float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (there)
            v = token.four(i);
        if (acts.q)
            write_acts<aligned>(acts, v, start + i, there);
        else if (there)
            store4<aligned>(acts.x + start + i, v, token.width - i);
    }
}

/* Lane j of 4 * THREADS adds products j, j + 4 * THREADS, ... of the hidden row by fma, then those of
 * the predecessor; thread t adds its four as (0 + 2) + (1 + 3), block_sum adds the threads. */
template <class Type, bool aligned>
__device__ __forceinline__ void confide(const Confidence &c, const Token<Type> &token, long long place,
                                        float *partial)
{
    const float *hidden = c.hidden + place * c.hidden_width, *behind = c.weights + c.hidden_width;
    float4 sums = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    for (int i = 4 * static_cast<int>(threadIdx.x); i < c.hidden_width; i += 4 * THREADS) {
        const int left = c.hidden_width - i;
        sums = fma4(load4<aligned>(hidden + i, left), load4<aligned>(c.weights + i, left), sums);
    }
    for (int i = 4 * static_cast<int>(threadIdx.x); i < token.width; i += 4 * THREADS)
        sums = fma4(token.four(i), load4<aligned>(behind + i, token.width - i), sums);
    const float lanes = __fadd_rn(__fadd_rn(sums.x, sums.z), __fadd_rn(sums.y, sums.w));
    const float x = __fadd_rn(block_sum<THREADS / 32>(lanes, partial), load(behind + token.width));
    if (threadIdx.x == 0)
        store(c.out + place, __fdiv_rn(1.0f, __fadd_rn(1.0f, exp_of(__fsub_rn(0.0f, x)))));
}

template <class Type, bool aligned>
__device__ __forceinline__ void markov(const char *weights, int num_tokens, int width,
                                       const Block &block, const Confidence &confidence,
                                       const Acts &acts)
{
    unsigned long long *warps = shared_block<unsigned long long>();
    const int id = id_before(block, warps);
    if (block.row == block.num_rows)
        return;
    const Token<Type> token = {weights, id, num_tokens, width, 1.0f};
    prepare<Type, aligned>(token, acts);
    if (!confidence.out)
        return;
    const long long place = static_cast<long long>(blockIdx.x) * block.num_rows + block.row;
    __syncthreads(); /* the keys were read */
    confide<Type, aligned>(confidence, token, place, reinterpret_cast<float *>(warps));
}

#define ARGUMENTS                                                                                  \
    const char *weights, int num_tokens, int width, const unsigned long long *keys,                \
        const int *names, const int *tokens, const int *row_offsets, int *ids, int num_tiles,      \
        int num_rows, int row, const float *hidden, const float *confidence, float *confidences,   \
        int hidden_width, float *x, signed char *q, float *d, int *sums, signed char *q2,          \
        float *d2, int *sums2
#define GIVEN                                                                                      \
    weights, num_tokens, width,                                                                    \
        {keys, names, tokens, row_offsets, ids, num_tiles, num_rows, row},                         \
        {hidden, confidence, confidences, hidden_width}, {x, q, d, sums, q2, d2, sums2}

extern "C" __global__ void __launch_bounds__(THREADS, 4)
markov_x4(ARGUMENTS)
{
    markov<WEIGHT_TYPE, true>(GIVEN);
}

extern "C" __global__ void __launch_bounds__(THREADS, 4)
markov_x1(ARGUMENTS)
{
    markov<WEIGHT_TYPE, false>(GIVEN);
}
