/* load_rows: rows of several rings, side by side and prepared for a product;
 * specrt/reference/load_rows.py says what it computes.
 *
 * Up to sixteen rings are [slots, length, width] floats, those that are none of width 0; row_seqs and
 * positions are [>= T], slots is by sequence. Rows of width, the sum of all, go to acts as quantize
 * writes them, width % 32 = 0; where acts has no codes, x alone, of any width. Grid: rows in x,
 * parts of 4 * THREADS columns in y. The x4 entry wants each ring's width % 4 = 0 and floats at
 * multiples of 16.
 */
#include "quantize.cuh"

#define THREADS 256

struct Ring {
    const float *rows;
    int length, width;
};

#define RING(i) const float *rows##i, int length##i, int width##i
#define FOUR_RINGS(a, b, c, d) RING(a), RING(b), RING(c), RING(d)
#define RINGS \
    FOUR_RINGS(0, 1, 2, 3), FOUR_RINGS(4, 5, 6, 7), FOUR_RINGS(8, 9, 10, 11), \
        FOUR_RINGS(12, 13, 14, 15)
#define GIVEN(i) {rows##i, length##i, width##i}
#define FOUR_GIVEN(a, b, c, d) GIVEN(a), GIVEN(b), GIVEN(c), GIVEN(d)
#define THE_RINGS \
    {FOUR_GIVEN(0, 1, 2, 3), FOUR_GIVEN(4, 5, 6, 7), FOUR_GIVEN(8, 9, 10, 11), \
     FOUR_GIVEN(12, 13, 14, 15)}

/* What is there of each sequence, and which row is whose. */
struct Step {
    const int *positions, *row_seqs, *slots;
};

/* Where column i of a row stands; it is in front of the last ring's end. */
__device__ __forceinline__ const float *place(const Ring (&rings)[16], long long slot, int position,
                                              int i)
{
    Ring ring = rings[0];
    int start = 0, first = 0;
#pragma unroll
    for (int r = 1; r < 16; r++) {
        start += rings[r - 1].width;
        if (i >= start) {
            ring = rings[r];
            first = start;
        }
    }
    return ring.rows + (slot * ring.length + position % ring.length) * ring.width + (i - first);
}

template <bool aligned>
__device__ __forceinline__ void load_rows(const Ring (&rings)[16], const Step &step, int width,
                                          const Acts &acts)
{
    const int i = 4 * static_cast<int>(blockIdx.y * THREADS + threadIdx.x);
    const bool there = i < width;
    const long long slot = load(step.slots + load(step.row_seqs + blockIdx.x));
    const int position = load(step.positions + blockIdx.x);
    const auto one = [&](int k) {
        return i + k < width ? load(place(rings, slot, position, i + k)) : 0.0f;
    };
    float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (aligned && there)
        v = load4<true>(place(rings, slot, position, i), 4);
    else if (!aligned)
        v = make_float4(one(0), one(1), one(2), one(3));
    const long long start = static_cast<long long>(blockIdx.x) * width + i;
    if (acts.q)
        write_acts<aligned>(acts, v, start, there);
    else if (there)
        store4<aligned>(acts.x + start, v, width - i);
}

extern "C" __global__ void __launch_bounds__(THREADS)
load_rows_x4(RINGS, const int *positions, const int *row_seqs, const int *slots, int width, float *x,
             signed char *q, float *d, int *sums, signed char *q2, float *d2, int *sums2)
{
    load_rows<true>(THE_RINGS, {positions, row_seqs, slots}, width,
                    {x, q, d, sums, q2, d2, sums2});
}

extern "C" __global__ void __launch_bounds__(THREADS)
load_rows_x1(RINGS, const int *positions, const int *row_seqs, const int *slots, int width, float *x,
             signed char *q, float *d, int *sums, signed char *q2, float *d2, int *sums2)
{
    load_rows<false>(THE_RINGS, {positions, row_seqs, slots}, width,
                     {x, q, d, sums, q2, d2, sums2});
}
