/* attention: softmax(scale q K^T) V over paged keys and values; specrt/reference/attention.py says
 * what it computes.
 *
 * KV_TYPE is the type of the cache: F32, F16 or Q8_0. q and out are [T, num_heads * dims] floats,
 * dims is even; softcap 0 is none. The queries of one KV head are numbered row by row, the
 * num_heads / kv_heads of a row side by side; a block has tile of them that follow each other, at
 * most MOST a warp. Of a tile only rows of one sequence share pages: blockIdx.z % num_runs takes
 * the first such run of rows, and every num_runs-th behind it. Grid: tiles in x (the last rows,
 * which see most, come first), KV heads in y, num_groups * num_runs in z.
 *
 * A chunk of 64 keys comes in slices of 128 bytes of each key, then of each value, by cp.async
 * through SLOTS slots of shared memory. Query i of a run is warp i % WARPS's. Keys: a lane has keys
 * lane and lane + 32; 32 dims are one chain of fmas, and chains are added ascending. Largest score
 * and sum of weights: lane by lane, then the tree 16, 8, 4, 2, 1. Values: a lane has four bytes of
 * each slice and adds the visible keys ascending. Chunks are merged ascending, span by span (see
 * View; a span is one chunk as long as a row sees at most SPANS), and spans ascending; behind them
 * a head's sink, if there are sinks [num_heads], else null. Nobody sees a position below its
 * sequence's lowest [B]; with row_offsets [B + 1], else null, rows see those of their sequence
 * that stand behind them in the step, whatever the window.
 *
 * With one group a block walks all chunks and merges as it goes. With more, each takes its share of
 * the spans and writes the results of single ones, which attention_merge merges by the same
 * operations: the same bits. Who sees what is read on the device, so that a launch can be captured:
 * max_spans is what a row sees at most.
 *
 * partials: values [T, num_heads, max_spans, dims], then largest score and sum of weights
 * [T, num_heads, max_spans, 2]; null with one group. All addresses are multiples of 16. Shared
 * memory: the slots, then floats: per query its dims padded to 16 bytes of keys, 64 weights, and
 * dims again.
 */
#include "attention_merge.cuh"
#include "attention_rows.cuh"

#define SLOTS 3
#define BLOCKS 4 /* at least on a multiprocessor: shared memory allows no more before sm_90, and to
                    reach more the assembler would spill */

/* Start the copy of a slice of a run's chunk, keys first, then values. */
template <class Type>
__device__ __forceinline__ void stage(const Args &args, const Run &run, int page, int head,
                                      int chunk, bool keys, int slice, char *slot)
{
    const long long block = static_cast<long long>(page) * args.kv_heads + head;
    const char *from = (keys ? args.k : args.v) + block * PAGE * args.row_bytes + slice * SLICE;
    const int thread = static_cast<int>(threadIdx.x), vector = thread % VECTORS;
    const int bytes = args.row_bytes - slice * SLICE;
    if (16 * vector < bytes)
        for (int row = thread / VECTORS; row < PAGE; row += THREADS / VECTORS) {
            const int position = chunk * PAGE + row;
            cp_async_16(slot + row * STRIDE + 16 * vector,
                        from + static_cast<long long>(row) * args.row_bytes + 16 * vector,
                        position >= run.first && position < run.last);
        }
    if (Type::SCALED && thread < least(bytes, SLICE) / 32 * VECTORS) {
        const unsigned short *scales = keys ? args.k_scale : args.v_scale;
        const long long group = block * (args.dims / 32) + 4 * slice;
        cp_async_16(slot + SCALES + 16 * thread, scales + group * PAGE + 8 * thread, true);
    }
}

/* Where a warp's things lie: of its first query, the others are WARPS queries on. */
struct Place { float *q, *weights, *totals; };

/* Scores to weights, and their sums to those of the spans. */
__device__ __forceinline__ void weigh(const Args &args, const Run &run, int head, int chunk,
                                      const float (&score)[MOST][2], const Place &place, Mine &mine)
{
    const Seen seen = look_at(args, run, mine, chunk);
    const int lane = static_cast<int>(threadIdx.x % 32);
    float2 own = make_float2(0.0f, 0.0f);
    bool sees = false; /* this lane's query */
#pragma unroll
    for (int i = 0; i < MOST; i++) {
        if (seen.lo[i] >= seen.hi[i])
            continue;
        const float2 tail = softmax(score[i], args.scale, args.softcap, seen.lo[i], seen.hi[i],
                                    place.weights + WARPS * i * PAGE);
        if (lane == i)
            sees = true, own = tail;
    }
    if (!sees)
        return;
    const View view = view_of(args, run, mine.position);
    if (begins(view, chunk))
        mine.span.top = own.x, mine.span.sum = own.y;
    else
        merge(mine.span, own.x, own.y);
    if (!ends(view, chunk))
        return;
    if (args.num_groups == 1) {
        merge(mine.spans, mine.span.top, mine.span.sum);
        return;
    }
    const long long count = static_cast<long long>(args.num_rows) * args.num_heads;
    float2 *tails = reinterpret_cast<float2 *>(args.partials + count * args.max_spans * args.dims);
    store(tails + partial_of(args, run, head, lane, view, chunk),
          make_float2(mine.span.top, mine.span.sum));
}

template <int n>
__device__ __forceinline__ void merge_words(float *p, float keep, float (&x)[n], float take)
{
    float total[n];
    load_words(p, total);
#pragma unroll
    for (int d = 0; d < n; d++)
        x[d] = merged(total[d], keep, x[d], take);
}

/* A slice of a chunk's weighted values to those of its span, and to those of the spans at its end.
 * The span's are kept where its results go, or in out. */
template <class Type>
__device__ __forceinline__ void keep_values(const Args &args, const Run &run, int head, int chunk,
                                            int dim, float (&sums)[MOST][Type::WORD],
                                            const Place &place, const Mine &mine, const Seen &seen)
{
    const int warp = static_cast<int>(threadIdx.x / 32);
#pragma unroll
    for (int i = 0; i < MOST; i++) {
        if (seen.lo[i] >= seen.hi[i])
            continue;
        const int position = __shfl_sync(ALL_LANES, mine.position, i);
        const float keep = __shfl_sync(ALL_LANES, mine.span.keep, i);
        const float take = __shfl_sync(ALL_LANES, mine.span.take, i);
        const float keep_all = __shfl_sync(ALL_LANES, mine.spans.keep, i);
        const float take_all = __shfl_sync(ALL_LANES, mine.spans.take, i);
        if (dim >= args.dims)
            continue;
        const View view = view_of(args, run, position);
        const bool whole = args.num_groups == 1;
        float *span = whole ? args.out + head_of(args, run, head, warp + WARPS * i) * args.dims
                            : args.partials +
                                  partial_of(args, run, head, i, view, chunk) * args.dims;
        if (!begins(view, chunk))
            merge_words(span + dim, keep, sums[i], take);
        if (whole && ends(view, chunk)) {
            span = place.totals + WARPS * i * args.dims;
            merge_words(span + dim, keep_all, sums[i], take_all);
        }
        store_words(span + dim, sums[i]);
    }
}

template <class Type>
__device__ __forceinline__ void finish(const Args &args, const Run &run, int head,
                                       const Place &place, Mine &mine)
{
    const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
    if (args.sinks && lane < mine.count) {
        const long long at = head_of(args, run, head, warp + WARPS * lane) % args.num_heads;
        merge(mine.spans, load(args.sinks + at), 1.0f);
    }
#pragma unroll
    for (int i = 0; i < MOST; i++) {
        if (i >= mine.count)
            break;
        float *out = args.out + head_of(args, run, head, warp + WARPS * i) * args.dims;
        const float inverse = __fdiv_rn(1.0f, __shfl_sync(ALL_LANES, mine.spans.sum, i));
        const float keep = __shfl_sync(ALL_LANES, mine.spans.keep, i);
        const float take = __shfl_sync(ALL_LANES, mine.spans.take, i);
        for (int dim = lane * Type::WORD; dim < args.dims; dim += 32 * Type::WORD) {
            float total[Type::WORD];
            load_words(place.totals + WARPS * i * args.dims + dim, total);
#pragma unroll
            for (int d = 0; d < Type::WORD; d++)
                total[d] = __fmul_rn(args.sinks ? merged(total[d], keep, 0.0f, take) : total[d],
                                     inverse);
            store_words(out + dim, total);
        }
    }
}

/* Hands out the slices of chunks in the order in which they are used. */
struct Feed { int chunk, end, slice, page, next_page; };

template <class Type>
__device__ __forceinline__ void feed(const Args &args, const Run &run, int head, int num_slices,
                                     char *slot, Feed &feed)
{
    if (feed.chunk < feed.end) {
        if (feed.slice == 0) {
            feed.page = feed.next_page; /* read a chunk ahead: nobody waits for it */
            if (feed.chunk + 1 < feed.end)
                feed.next_page = page_of(args.step, run.seq, feed.chunk + 1);
        }
        const bool keys = feed.slice < num_slices;
        stage<Type>(args, run, feed.page, head, feed.chunk, keys,
                    keys ? feed.slice : feed.slice - num_slices, slot);
        if (++feed.slice == 2 * num_slices)
            feed.slice = 0, feed.chunk++;
    }
    cp_async_commit();
}

/* Chunks from .. to - 1 for the queries of a run. */
template <class Type>
__device__ __forceinline__ void walk(const Args &args, const Run &run, int head, int from, int to)
{
    const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
    const int num_vectors = args.row_bytes / 16;
    const int num_slices = (num_vectors + VECTORS - 1) / VECTORS;
    char *slots = shared_block<char>();
    float *floats = reinterpret_cast<float *>(slots + SLOTS * SLOT);
    const int stride = num_vectors * Type::DIMS;
    Place place = {floats, floats + args.tile * stride, floats + args.tile * (stride + PAGE)};
    load_queries(args, run, head, place.q, stride);
    if (args.num_groups == 1)
        for (int i = static_cast<int>(threadIdx.x); i < args.tile * args.dims; i += THREADS)
            store(place.totals + i, 0.0f);
    place.q += warp * stride, place.weights += warp * PAGE, place.totals += warp * args.dims;
    Mine mine = queries_of(args, run, warp);
    Feed next = {from, to, 0, 0, page_of(args.step, run.seq, from)};
#pragma unroll 1
    for (int i = 0; i < SLOTS - 1; i++)
        feed<Type>(args, run, head, num_slices, slots + i * SLOT, next);
    int at = 0; /* the slot at hand */
    for (int chunk = from; chunk < to; chunk++) {
        float score[MOST][2] = {};
        for (int slice = 0; slice < 2 * num_slices; slice++) {
            cp_async_wait<SLOTS - 2>();
            __syncthreads();
            const int free = at ? at - 1 : SLOTS - 1;
            feed<Type>(args, run, head, num_slices, slots + free * SLOT, next);
            const char *slot = slots + at * SLOT;
            at = at + 1 == SLOTS ? 0 : at + 1;
            if (slice < num_slices) {
                add_scores<Type>(slot, place.q + slice * VECTORS * Type::DIMS, stride,
                                 least(VECTORS, num_vectors - slice * VECTORS), mine.count, score);
                if (slice == num_slices - 1)
                    weigh(args, run, head, chunk, score, place, mine);
                continue;
            }
            float sums[MOST][Type::WORD] = {};
            const Seen seen = look_at(args, run, mine, chunk);
            weigh_values<Type>(slot, place.weights, mine.count, seen, sums);
            const int dim = ((slice - num_slices) * 32 + lane) * Type::WORD;
            keep_values<Type>(args, run, head, chunk, dim, sums, place, mine, seen);
        }
    }
    if (args.num_groups == 1)
        finish<Type>(args, run, head, place, mine);
    __syncthreads(); /* another run may follow */
}

template <class Type> __device__ __forceinline__ void attention(const Args &args)
{
    const int per_head = args.num_heads / args.kv_heads, head = static_cast<int>(blockIdx.y);
    const int begin = static_cast<int>(gridDim.x - 1 - blockIdx.x) * args.tile;
    const int end = least(begin + args.tile, args.num_rows * per_head);
    const int group = static_cast<int>(blockIdx.z) / args.num_runs;
    int skipped = static_cast<int>(blockIdx.z) % args.num_runs;
    for (int query = begin; query < end; skipped--) {
        const Run run = run_at(args, per_head, query, end);
        query = run.end;
        if (skipped)
            continue;
        skipped = args.num_runs;
        const int first = run.first / PAGE / run.span, last = (run.last - 1) / PAGE / run.span + 1;
        const int share = (last - first + args.num_groups - 1) / args.num_groups * run.span;
        const int from = first * run.span + group * share;
        const int end = least((run.last - 1) / PAGE + 1, from + share);
        if (from < end)
            walk<Type>(args, run, head, most(from, run.first / PAGE), end);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
attention_pages(const float *q, float *out, float *partials, const char *k, const char *v,
                const unsigned short *k_scale, const unsigned short *v_scale, const float *sinks,
                const int *lowest, const int *row_offsets, int num_rows, int num_heads,
                int kv_heads, int dims, int row_bytes, int window, float scale, float softcap,
                int tile, int num_groups, int num_runs, int max_spans, const int *positions,
                const int *row_seqs, const int *pages, int table_width, int ring_pages)
{
    attention<KV_TYPE>({q, out, partials, k, v, k_scale, v_scale, sinks, lowest, row_offsets,
                        num_rows, num_heads, kv_heads, dims, row_bytes, window, scale, softcap,
                        tile, num_groups, num_runs, max_spans,
                        {positions, row_seqs, pages, table_width, ring_pages}});
}

extern "C" __global__ void __launch_bounds__(THREADS)
attention_merge_x4(const float *partials, float *out, const float *sinks, const int *positions,
                   const int *row_seqs, const int *lowest, const int *row_offsets, int num_rows,
                   int num_heads, int dims, int window, int max_spans)
{
    merge_spans<true>(partials, out, sinks, positions, row_seqs, lowest, row_offsets, num_rows,
                     num_heads, dims, window, max_spans);
}

extern "C" __global__ void __launch_bounds__(THREADS)
attention_merge_x1(const float *partials, float *out, const float *sinks, const int *positions,
                   const int *row_seqs, const int *lowest, const int *row_offsets, int num_rows,
                   int num_heads, int dims, int window, int max_spans)
{
    merge_spans<false>(partials, out, sinks, positions, row_seqs, lowest, row_offsets, num_rows,
                     num_heads, dims, window, max_spans);
}
