/* attention: softmax(scale q K^T) V over paged keys and values; specrt/reference/attention.py says
 * what it computes.
 *
 * q and out are [T, num_heads * dims] floats, dims is even. The queries of one KV head are numbered
 * row by row, the num_heads / kv_heads of a row side by side; a block has tile of them that follow
 * each other, at most MOST a warp. Of a tile only rows of one sequence share pages: blockIdx.z %
 * num_runs takes the first such run of rows, and every num_runs-th behind it. Grid: tiles in x (the
 * last rows, which see most, come first), KV heads in y, num_groups * num_runs in z.
 *
 * A chunk of 64 keys comes in slices of 128 bytes of each key, then of each value, by cp.async
 * through SLOTS slots of shared memory. Query i of a run is warp i % WARPS's. Keys: a lane has keys
 * lane and lane + 32; 32 dims are one chain of fmas, and chains are added ascending. Largest score
 * and sum of weights: lane by lane, then the tree 16, 8, 4, 2, 1. Values: a lane has four bytes of
 * each slice and adds the visible keys ascending. Chunks are merged ascending, span by span (see
 * View; a span is one chunk as long as a row sees at most SPANS), and spans ascending.
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
#include "attention.cuh"

#define SLOTS 3
#define BLOCKS 4 /* at least on a multiprocessor: shared memory allows no more before sm_90, and to
                    reach more the assembler would spill */

struct Args {
    const float *q;
    float *out, *partials;
    const char *k, *v;
    const unsigned short *k_scale, *v_scale;
    int num_rows, num_heads, kv_heads, dims, row_bytes, window;
    float scale;
    int tile, num_groups, num_runs, max_spans;
    Step step;
};

/* Queries begin .. end - 1 of a KV head: rows of one sequence, of which some see positions first ..
 * last - 1; span is the longest of theirs. */
struct Run { int begin, end, seq, first, last, span; };

/* The run of a tile that begins at a query. */
__device__ __forceinline__ Run run_at(const Args &args, int per_head, int begin, int end)
{
    const int row = begin / per_head;
    Run run = {begin, end, load(args.step.row_seqs + row), 0x7fffffff, 0, 1};
    for (int r = row; r * per_head < end; r++) {
        if (load(args.step.row_seqs + r) != run.seq) {
            run.end = r * per_head;
            break;
        }
        const int position = load(args.step.positions + r);
        run.first = least(run.first, first_visible(args.window, position));
        run.last = most(run.last, position + 1);
        run.span = most(run.span, view_of(args.window, position).span);
    }
    return run;
}

/* What a warp knows of its queries, those at index warp + WARPS i of the run. Lane i has query i's
 * position, and of the span at hand and of the spans before it the largest score, the sum of
 * weights, and the factors of the last merge. */
struct Merge { float top, sum, keep, take; };
struct Mine {
    int count, position;
    Merge span, spans;
};

__device__ __forceinline__ Mine queries_of(const Args &args, const Run &run, int warp)
{
    const int lane = static_cast<int>(threadIdx.x % 32), query = run.begin + warp + WARPS * lane;
    Mine mine = {};
    mine.count = (run.end - run.begin - warp + WARPS - 1) / WARPS;
    mine.spans.top = __int_as_float(0xff800000);
    if (lane < mine.count)
        mine.position = load(args.step.positions + query / (args.num_heads / args.kv_heads));
    return mine;
}

__device__ __forceinline__ void merge(Merge &total, float top, float sum)
{
    total.top = merge_tops(total.top, top, total.keep, total.take);
    total.sum = merged(total.sum, total.keep, sum, total.take);
}

__device__ __forceinline__ Seen look_at(const Args &args, const Mine &mine, int chunk)
{
    Seen seen;
#pragma unroll
    for (int i = 0; i < MOST; i++) {
        const int position = __shfl_sync(ALL_LANES, mine.position, i), start = chunk * PAGE;
        seen.lo[i] = most(0, first_visible(args.window, position) - start);
        seen.hi[i] = least(PAGE, position + 1 - start);
        if (i >= mine.count || seen.lo[i] >= seen.hi[i])
            seen.lo[i] = PAGE, seen.hi[i] = 0;
    }
    return seen;
}

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

/* The head of q and out, counted over all rows, of a run's query. */
__device__ __forceinline__ long long head_of(const Args &args, const Run &run, int head, int index)
{
    const int per_head = args.num_heads / args.kv_heads, query = run.begin + index;
    return static_cast<long long>(query / per_head) * args.num_heads + head * per_head +
           query % per_head;
}

/* The queries of a run as rows of padded dims. */
__device__ __forceinline__ void load_queries(const Args &args, const Run &run, int head, float *to,
                                             int stride)
{
    const int count = (run.end - run.begin) * (stride / 4);
    for (int i = static_cast<int>(threadIdx.x); i < count; i += THREADS) {
        const int query = i / (stride / 4), dim = i % (stride / 4) * 4;
        const float *from = args.q + head_of(args, run, head, query) * args.dims + dim;
        float4 x = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (dim < args.dims)
            x = args.dims % 4 ? load4<false>(from, args.dims - dim) : load4<true>(from, 4);
        store(reinterpret_cast<float4 *>(to + 4 * i), x);
    }
}

/* Whether a chunk is the first that a row sees of its span, and whether it is the last. */
__device__ __forceinline__ bool begins(const View &view, int chunk)
{
    return chunk == view.first || chunk % view.span == 0;
}
__device__ __forceinline__ bool ends(const View &view, int chunk)
{
    return chunk == view.last || (chunk + 1) % view.span == 0;
}

/* Where the results of a query's span lie among the partials. */
__device__ __forceinline__ long long partial_of(const Args &args, const Run &run, int head, int i,
                                                const View &view, int chunk)
{
    const long long row = head_of(args, run, head, threadIdx.x / 32 + WARPS * i);
    return row * args.max_spans + chunk / view.span - view.first / view.span;
}

/* Scores to weights, and their sums to those of the spans. */
__device__ __forceinline__ void weigh(const Args &args, const Run &run, int head, int chunk,
                                      const float (&score)[MOST][2], const Place &place, Mine &mine)
{
    const Seen seen = look_at(args, mine, chunk);
    const int lane = static_cast<int>(threadIdx.x % 32);
    float2 own = make_float2(0.0f, 0.0f);
    bool sees = false; /* this lane's query */
#pragma unroll
    for (int i = 0; i < MOST; i++) {
        if (seen.lo[i] >= seen.hi[i])
            continue;
        const float2 tail = softmax(score[i], args.scale, seen.lo[i], seen.hi[i],
                                    place.weights + WARPS * i * PAGE);
        if (lane == i)
            sees = true, own = tail;
    }
    if (!sees)
        return;
    const View view = view_of(args.window, mine.position);
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
        const View view = view_of(args.window, position);
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
                                       const Place &place, const Mine &mine)
{
    const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
    for (int i = 0; i < MOST; i++) {
        if (i >= mine.count)
            break;
        float *out = args.out + head_of(args, run, head, warp + WARPS * i) * args.dims;
        const float inverse = __fdiv_rn(1.0f, __shfl_sync(ALL_LANES, mine.spans.sum, i));
        for (int dim = lane * Type::WORD; dim < args.dims; dim += 32 * Type::WORD) {
            float total[Type::WORD];
            load_words(place.totals + WARPS * i * args.dims + dim, total);
#pragma unroll
            for (int d = 0; d < Type::WORD; d++)
                total[d] = __fmul_rn(total[d], inverse);
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
            const Seen seen = look_at(args, mine, chunk);
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

#define PARAMETERS                                                                               \
    const float *q, float *out, float *partials, const char *k, const char *v,                   \
        const unsigned short *k_scale, const unsigned short *v_scale, int num_rows,              \
        int num_heads, int kv_heads, int dims, int row_bytes, int window, float scale, int tile, \
        int num_groups, int num_runs, int max_spans, const int *positions, const int *row_seqs, \
        const int *pages, int table_width, int ring_pages
#define ARGUMENTS                                                                                \
    Args                                                                                         \
    {                                                                                            \
        q, out, partials, k, v, k_scale, v_scale, num_rows, num_heads, kv_heads, dims,           \
            row_bytes, window, scale, tile, num_groups, num_runs, max_spans,                    \
            Step{positions, row_seqs, pages, table_width, ring_pages}                            \
    }

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
attention_f32(PARAMETERS)
{
    attention<F32>(ARGUMENTS);
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
attention_f16(PARAMETERS)
{
    attention<F16>(ARGUMENTS);
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
attention_q8_0(PARAMETERS)
{
    attention<Q8>(ARGUMENTS);
}

/* The merge of single spans: a warp is one head of one row and 128 of its dims, a lane four of
 * them. Grid: ceil(T * num_heads / WARPS) in x, ceil(dims / 128) in y. 32 spans at a time: a lane
 * has one, tops by a scan, then factors, all at once; then the sums, span by span. */
template <bool aligned>
__device__ __forceinline__ void merge_spans(const float *partials, float *out, const int *positions,
                                      int num_rows, int num_heads, int dims, int window,
                                      int max_spans)
{
    const int lane = static_cast<int>(threadIdx.x % 32);
    const long long count = static_cast<long long>(num_rows) * num_heads;
    const long long head = static_cast<long long>(blockIdx.x) * WARPS + threadIdx.x / 32;
    const int dim = static_cast<int>(blockIdx.y) * 128 + 4 * lane;
    if (head >= count)
        return;
    const View view = view_of(window, load(positions + head / num_heads));
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
    const float inverse = __fdiv_rn(1.0f, sum);
    total = make_float4(__fmul_rn(total.x, inverse), __fmul_rn(total.y, inverse),
                        __fmul_rn(total.z, inverse), __fmul_rn(total.w, inverse));
    store4<aligned>(out + head * dims + dim, total, dims - dim);
}

extern "C" __global__ void __launch_bounds__(THREADS)
attention_merge_x4(const float *partials, float *out, const int *positions, int num_rows,
                   int num_heads, int dims, int window, int max_spans)
{
    merge_spans<true>(partials, out, positions, num_rows, num_heads, dims, window, max_spans);
}

extern "C" __global__ void __launch_bounds__(THREADS)
attention_merge_x1(const float *partials, float *out, const int *positions, int num_rows,
                   int num_heads, int dims, int window, int max_spans)
{
    merge_spans<false>(partials, out, positions, num_rows, num_heads, dims, window, max_spans);
}
