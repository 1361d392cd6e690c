/* The arithmetic of attention: a chunk of keys and values in slices of shared memory, seen by up to
 * MOST queries of a warp; what a row sees; and how chunks and spans of chunks are merged. */
#include "kv_types.cuh"

#define WARPS 4
#define THREADS (32 * WARPS)
#define MOST 4 /* queries of a warp */
#define SLICE 128
#define VECTORS (SLICE / 16)
#define STRIDE (SLICE + 16) /* lanes that read one vector of 32 keys meet no bank twice */
#define SCALES (PAGE * STRIDE)
#define SLOT (SCALES + 4 * 2 * PAGE) /* four groups of 32 dims have scales */
#define SPANS 128
#define ALL_LANES 0xffffffffu

__device__ __forceinline__ int least(int a, int b) { return a < b ? a : b; }
__device__ __forceinline__ int most(int a, int b) { return a > b ? a : b; }

/* The first position of a sequence that has keys. Sequence 0's is read along with the number of the
 * sequence: where there is but one, nobody waits for it. */
__device__ __forceinline__ int lowest_of(const int *lowest, int seq)
{
    const int first = load(lowest);
    return seq ? load(lowest + seq) : first;
}

/* The first position that a row at this position sees. */
__device__ __forceinline__ int first_visible(int window, int lowest, int position)
{
    return window ? most(lowest, position - window + 1) : lowest;
}

/* The chunks of the positions first .. last that a row sees, and how many of them, a power of two,
 * are a span: few enough that the row sees SPANS spans or, where the first is cut, one more. */
struct View { int first, last, span; };

__device__ __forceinline__ View view_of(int first, int last)
{
    View view = {first / PAGE, last / PAGE, 1};
    while (view.last - view.first >= SPANS * view.span)
        view.span *= 2;
    return view;
}

/* The factors of what is merged and of a chunk, with their tops; the new top. */
__device__ __forceinline__ float merge_tops(float top, float other, float &keep, float &take)
{
    const float larger = other > top ? other : top;
    keep = exp_of(__fsub_rn(top, larger));
    take = exp_of(__fsub_rn(other, larger));
    return larger;
}

__device__ __forceinline__ float merged(float total, float keep, float chunk, float take)
{
    return __fmaf_rn(total, keep, __fmul_rn(chunk, take));
}

/* Of the chunk at hand query i of a warp sees keys lo[i] .. hi[i] - 1, or none: then lo > hi. */
struct Seen { int lo[MOST], hi[MOST]; };

__device__ __forceinline__ float scale_of(const char *slot, int group, int key)
{
    const unsigned short *scales = reinterpret_cast<const unsigned short *>(slot + SCALES);
    return half_bits_to_float(load(scales + group * PAGE + key));
}

/* Add a slice's part to the scores of keys lane and lane + 32; q is the warp's first query's. */
template <class Type>
__device__ __forceinline__ void add_scores(const char *slot, const float *q, int stride,
                                           int num_vectors, int count, float (&score)[MOST][2])
{
    const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll 1
    for (int start = 0; start < num_vectors; start += Type::CHAIN) {
        float chain[MOST][2] = {};
#pragma unroll 1
        for (int at = start; at < least(start + Type::CHAIN, num_vectors); at++) {
            unsigned raw[2][4];
#pragma unroll
            for (int h = 0; h < 2; h++)
                load_words(reinterpret_cast<const unsigned *>(
                               slot + (lane + 32 * h) * STRIDE + 16 * at),
                           raw[h]);
#pragma unroll
            for (int four = 0; four < Type::DIMS / 4; four++) {
                float k[2][4];
                Type::four(raw[0], four, k[0]);
                Type::four(raw[1], four, k[1]);
#pragma unroll
                for (int i = 0; i < MOST; i++) {
                    if (i >= count)
                        break;
                    float x[4];
                    load_words(q + WARPS * i * stride + at * Type::DIMS + 4 * four, x);
#pragma unroll
                    for (int h = 0; h < 2; h++)
#pragma unroll
                        for (int d = 0; d < 4; d++)
                            chain[i][h] = __fmaf_rn(x[d], k[h][d], chain[i][h]);
                }
            }
        }
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const float scale = Type::SCALED ? scale_of(slot, start / 2, lane + 32 * h) : 1.0f;
#pragma unroll
            for (int i = 0; i < MOST; i++)
                score[i][h] = Type::SCALED ? __fmaf_rn(scale, chain[i][h], score[i][h])
                                           : __fadd_rn(score[i][h], chain[i][h]);
        }
    }
}

/* A score from q k. */
__device__ __forceinline__ float capped(float product, float scale, float cap)
{
    const float score = __fmul_rn(product, scale);
    return cap > 0.0f ? __fmul_rn(cap, tanh_of(__fdiv_rn(score, cap))) : score;
}

/* The scores of query i to weights, 0 where hidden; their largest, and their sum. */
__device__ __forceinline__ float2 softmax(const float (&score)[2], float scale, float cap, int lo,
                                          int hi, float *weights)
{
    const int lane = static_cast<int>(threadIdx.x % 32);
    const float lowest = __int_as_float(0xff800000);
    const bool sees[2] = {lane >= lo && lane < hi, lane + 32 >= lo && lane + 32 < hi};
    const float low = sees[0] ? capped(score[0], scale, cap) : lowest;
    const float high = sees[1] ? capped(score[1], scale, cap) : lowest;
    float top = low > lowest ? low : lowest;
    top = high > top ? high : top;
#pragma unroll
    for (int flip = 16; flip > 0; flip /= 2) {
        const float other = __shfl_xor_sync(ALL_LANES, top, flip);
        top = other > top ? other : top;
    }
    const float w0 = sees[0] ? exp_of(__fsub_rn(low, top)) : 0.0f;
    const float w1 = sees[1] ? exp_of(__fsub_rn(high, top)) : 0.0f;
    store(weights + lane, w0);
    store(weights + lane + 32, w1);
    float sum = __fadd_rn(w0, w1);
#pragma unroll
    for (int flip = 16; flip > 0; flip /= 2)
        sum = __fadd_rn(sum, __shfl_xor_sync(ALL_LANES, sum, flip));
    return make_float2(top, sum);
}

/* The weighted sum over a slice's visible keys, ascending; weights are the warp's first query's. */
template <class Type>
__device__ __forceinline__ void weigh_values(const char *slot, const float *weights,
                                             int count, const Seen &seen,
                                             float (&sums)[MOST][Type::WORD])
{
    const int lane = static_cast<int>(threadIdx.x % 32);
    int lo = PAGE, hi = 0, all_lo = 0, all_hi = PAGE;
#pragma unroll
    for (int i = 0; i < MOST; i++)
        if (i < count) {
            lo = least(lo, seen.lo[i]), hi = most(hi, seen.hi[i]);
            all_lo = most(all_lo, seen.lo[i]), all_hi = least(all_hi, seen.hi[i]);
        }
#pragma unroll 1
    for (int key = lo / Type::KEYS * Type::KEYS; key < hi; key += Type::KEYS) {
        const bool all = key >= all_lo && key + Type::KEYS <= all_hi;
        float values[Type::KEYS][Type::WORD];
#pragma unroll
        for (int j = 0; j < Type::KEYS; j++) {
            Type::word(load(reinterpret_cast<const unsigned *>(slot + (key + j) * STRIDE) + lane),
                       values[j]);
            if (Type::SCALED) {
                const float scale = scale_of(slot, lane / 8, key + j);
#pragma unroll
                for (int d = 0; d < Type::WORD; d++)
                    values[j][d] = __fmul_rn(scale, values[j][d]);
            }
        }
#pragma unroll
        for (int i = 0; i < MOST; i++) {
            if (i >= count)
                break;
            float w[Type::KEYS];
            load_words(weights + WARPS * i * PAGE + key, w);
#pragma unroll
            for (int j = 0; j < Type::KEYS; j++)
                if (all || (key + j >= seen.lo[i] && key + j < seen.hi[i]))
#pragma unroll
                    for (int d = 0; d < Type::WORD; d++)
                        sums[i][d] = __fmaf_rn(w[j], values[j][d], sums[i][d]);
        }
    }
}
