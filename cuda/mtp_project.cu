/* mtp_project: a token beside the hidden row before it, both normed and prepared for the product
 * that follows; specrt/reference/mtp_project.py says what it computes.
 *
 * WEIGHT_TYPE is the embedding's type; weights are as specrt/kernels/weights.py lays them out.
 * hidden is [slots, ring, width] floats, norms are [width]; tokens, positions and row_seqs are
 * [>= T], slots is by sequence. Rows of 2 * width go to acts as quantize writes them, width % 16 = 0;
 * where acts has no codes, x alone, of any width. Grid T: a block is one row. Shared memory: two
 * floats per warp. The x4 entry wants width % 4 = 0 and floats at multiples of 16.
 *
 * Both entries give the bits of embed, rms_norm and quantize. The embedding is read twice: it is
 * cached, and no width is too long for it.
 */
#include "embed.cuh"
#include "norm.cuh"

/* What is there of each sequence, and which row is whose. */
struct Step {
    const int *tokens, *positions, *row_seqs, *slots;
};

/* Of the ring, and of the norms. */
struct Inputs {
    const float *hidden, *token_norm, *hidden_norm;
    int ring, width;
    float eps;
};

/* A row of hidden, or zeros if from is null. */
template <bool aligned> struct Hidden {
    const float *from;
    int width;

    __device__ __forceinline__ float4 four(int i) const
    {
        return from ? load4<aligned>(from + i, width - i) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    }
};

/* The row that the position before wrote; null before position 0. */
__device__ __forceinline__ const float *row_before(const Inputs &in, const Step &step)
{
    const int position = load(step.positions + blockIdx.x);
    if (position <= 0)
        return nullptr;
    const long long slot = load(step.slots + load(step.row_seqs + blockIdx.x));
    return in.hidden + (slot * in.ring + (position - 1) % in.ring) * in.width;
}

/* Fours of the token's half come first, then as many of the hidden row's. */
template <class Type, bool aligned>
__device__ __forceinline__ void mtp_project(const char *weights, int num_rows, float scale,
                                            const Step &step, const Inputs &in, const Acts &acts)
{
    const int id = load(step.tokens + blockIdx.x);
    const Token<Type> token = {weights, id, num_rows, in.width, scale};
    const Hidden<aligned> hidden = {row_before(in, step), in.width};
    float *partial = shared_block<float>();
    const float token_factor =
        inverse_rms([&](int i) { return token.four(i); }, in.width, in.eps, partial);
    const float hidden_factor = inverse_rms([&](int i) { return hidden.four(i); }, in.width, in.eps,
                                            partial + THREADS / 32);
    const int fours = (in.width + 3) / 4;
    const long long row = 2 * static_cast<long long>(blockIdx.x);
    for (int first = 0; first < 2 * fours; first += THREADS) { /* with all lanes of a warp */
        const int number = first + static_cast<int>(threadIdx.x);
        const bool there = number < 2 * fours, second = number >= fours;
        const int i = 4 * (second ? number - fours : number);
        const long long start = (row + second) * in.width + i;
        float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (there) {
            const float *norm = (second ? in.hidden_norm : in.token_norm) + i;
            v = second ? scaled(hidden.four(i), hidden_factor) : scaled(token.four(i), token_factor);
            v = product(v, load4<aligned>(norm, in.width - i));
        }
        if (acts.q)
            write_acts<aligned>(acts, v, start, there);
        else if (there)
            store4<aligned>(acts.x + start, v, in.width - i);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
mtp_project_x4(const char *weights, int num_rows, float scale, const int *tokens,
               const int *positions, const int *row_seqs, const int *slots, const float *hidden,
               const float *token_norm, const float *hidden_norm, int ring, int width, float eps,
               float *x, signed char *q, float *d, int *sums, signed char *q2, float *d2,
               int *sums2)
{
    mtp_project<WEIGHT_TYPE, true>(weights, num_rows, scale, {tokens, positions, row_seqs, slots},
                                   {hidden, token_norm, hidden_norm, ring, width, eps},
                                   {x, q, d, sums, q2, d2, sums2});
}

extern "C" __global__ void __launch_bounds__(THREADS)
mtp_project_x1(const char *weights, int num_rows, float scale, const int *tokens,
               const int *positions, const int *row_seqs, const int *slots, const float *hidden,
               const float *token_norm, const float *hidden_norm, int ring, int width, float eps,
               float *x, signed char *q, float *d, int *sums, signed char *q2, float *d2,
               int *sums2)
{
    mtp_project<WEIGHT_TYPE, false>(weights, num_rows, scale, {tokens, positions, row_seqs, slots},
                                    {hidden, token_norm, hidden_norm, ring, width, eps},
                                    {x, q, d, sums, q2, d2, sums2});
}
