/* How the results of single spans, and then a head's sink, become those of rows. */
#include "attention.cuh"

/* A warp is one head of one row and 128 of its dims, a lane four of them. Grid: T * num_heads /
 * WARPS, rounded up, in x, ceil(dims / 128) in y. 32 spans at a time: a lane has one, tops by a
 * scan, then factors, all at once; then the sums, span by span. */
template <bool aligned>
__device__ __forceinline__ void merge_spans(const float *partials, float *out,
                                            const float *sinks, const int *positions,
                                            const int *row_seqs, const int *lowest,
                                            const int *row_offsets, int num_rows, int num_heads,
                                            int dims, int window, int max_spans)
{
    const int lane = static_cast<int>(threadIdx.x % 32);
    const long long count = static_cast<long long>(num_rows) * num_heads;
    const long long head = static_cast<long long>(blockIdx.x) * WARPS + threadIdx.x / 32;
    const int dim = static_cast<int>(blockIdx.y) * 128 + 4 * lane;
    if (head >= count)
        return;
    const long long row = head / num_heads;
    const int position = load(positions + row), seq = load(row_seqs + row);
    const int last = row_offsets ? load(positions + load(row_offsets + seq + 1) - 1) : position;
    const View view = view_of(first_visible(window, lowest_of(lowest, seq), position), last);
    const int num_spans = view.last / view.span - view.first / view.span + 1;
    const float *values = partials + head * max_spans * dims + dim;
    const float2 *tails = reinterpret_cast<const float2 *>(partials + count * max_spans * dims) +
                          head * max_spans;
    float sum = 0.0f, before = __int_as_float(0xff800000);
    float4 total = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    for (int start = 0; start < num_spans; start += 32) {
        const int n = least(32, num_spans - start);
        float2 tail = make_float2(__int_as_float(0xff800000), 0.0f);
        if (lane < n)
            tail = load(tails + start + lane);
        float top = tail.x; /* of the spans up to this lane's */
#pragma unroll
        for (int by = 1; by < 32; by *= 2) {
            const float other = __shfl_up_sync(ALL_LANES, top, by);
            top = lane >= by && other > top ? other : top;
        }
        top = before > top ? before : top;
        float previous = __shfl_up_sync(ALL_LANES, top, 1), keep, take;
        previous = lane ? previous : before;
        merge_tops(previous, tail.x, keep, take);
        before = __shfl_sync(ALL_LANES, top, 31);
#pragma unroll 4
        for (int i = 0; i < n; i++) {
            const float a = __shfl_sync(ALL_LANES, keep, i), b = __shfl_sync(ALL_LANES, take, i);
            sum = merged(sum, a, __shfl_sync(ALL_LANES, tail.y, i), b);
            if (dim >= dims)
                continue;
            const float4 x = load4<aligned>(
                values + static_cast<long long>(start + i) * dims, dims - dim);
            total = make_float4(merged(total.x, a, x.x, b), merged(total.y, a, x.y, b),
                                merged(total.z, a, x.z, b), merged(total.w, a, x.w, b));
        }
    }
    if (dim >= dims)
        return;
    if (sinks) {
        float keep, take;
        merge_tops(before, load(sinks + head % num_heads), keep, take);
        sum = merged(sum, keep, 1.0f, take);
        total = make_float4(merged(total.x, keep, 0.0f, take), merged(total.y, keep, 0.0f, take),
                            merged(total.z, keep, 0.0f, take), merged(total.w, keep, 0.0f, take));
    }
    const float inverse = __fdiv_rn(1.0f, sum);
    total = make_float4(__fmul_rn(total.x, inverse), __fmul_rn(total.y, inverse),
                        __fmul_rn(total.z, inverse), __fmul_rn(total.w, inverse));
    store4<aligned>(out + head * dims + dim, total, dims - dim);
}
