/* What a block and a warp of attention work on: rows, queries, and what is known of them. */
#include "attention.cuh"

struct Args {
    const float *q;
    float *out, *partials;
    const char *k, *v;
    const unsigned short *k_scale, *v_scale;
    const float *sinks;               /* [num_heads] or null */
    const int *lowest, *row_offsets;  /* of the step; the second null unless rows see later ones */
    int num_rows, num_heads, kv_heads, dims, row_bytes, window;
    float scale, softcap;
    int tile, num_groups, num_runs, max_spans;
    Step step;
};

/* Queries begin .. end - 1 of a KV head: rows of one sequence, of which some see positions first ..
 * last - 1, and none one below lowest; span is the longest of theirs. */
struct Run { int begin, end, seq, lowest, first, last, span; };

/* What a row of a run sees; behind is the last row's position of its sequence. */
__device__ __forceinline__ int first_seen(const Args &args, const Run &run, int position)
{
    return first_visible(args.window, run.lowest, position);
}
__device__ __forceinline__ int last_seen(const Args &args, int behind, int position)
{
    return args.row_offsets ? behind : position;
}
__device__ __forceinline__ View view_of(const Args &args, const Run &run, int position)
{
    return view_of(first_seen(args, run, position), last_seen(args, run.last - 1, position));
}

/* The run of a tile that begins at a query. */
__device__ __forceinline__ Run run_at(const Args &args, int per_head, int begin, int end)
{
    const int row = begin / per_head, seq = load(args.step.row_seqs + row);
    Run run = {begin, end, seq, lowest_of(args.lowest, seq), 0x7fffffff, 0, 1};
    int behind = 0;
    if (args.row_offsets)
        behind = load(args.step.positions + load(args.row_offsets + seq + 1) - 1);
    for (int r = row; r * per_head < end; r++) {
        if (load(args.step.row_seqs + r) != run.seq) {
            run.end = r * per_head;
            break;
        }
        const int position = load(args.step.positions + r);
        const int first = first_seen(args, run, position), last = last_seen(args, behind, position);
        run.first = least(run.first, first);
        run.last = most(run.last, last + 1);
        run.span = most(run.span, view_of(first, last).span);
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

__device__ __forceinline__ Seen look_at(const Args &args, const Run &run, const Mine &mine,
                                        int chunk)
{
    Seen seen;
#pragma unroll
    for (int i = 0; i < MOST; i++) {
        const int position = __shfl_sync(ALL_LANES, mine.position, i), start = chunk * PAGE;
        seen.lo[i] = most(0, first_seen(args, run, position) - start);
        seen.hi[i] = least(PAGE, last_seen(args, run.last - 1, position) + 1 - start);
        if (i >= mine.count || seen.lo[i] >= seen.hi[i])
            seen.lo[i] = PAGE, seen.hi[i] = 0;
    }
    return seen;
}

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
