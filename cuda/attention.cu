/* attention: softmax(scale q K^T) V over paged keys and values; specrt/reference/attention.py says
 * what it computes.
 *
 * q and out are [T, num_heads * dims] floats, dims is even. The queries of one KV head are numbered
 * row by row, the num_heads / kv_heads of a row side by side; tile of them that follow each other
 * are a block's, WARPS * at most MOST. Of a tile only rows of one sequence share pages: block z % num_runs
 * takes the first such run of rows, and every num_runs-th behind it. Grid: tiles in x (the last
 * rows, which see most, come first), KV heads in y, num_groups * num_runs in z.
 *
 * A chunk of 64 keys comes in slices of 128 bytes of each key, then of each value, by cp.async
 * through SLOTS slots of shared memory. Query i of a tile is warp i % WARPS's. Keys: a lane has
 * keys lane and lane + 32; 32 dims are one chain of fmas, and chains are added ascending. Largest score and sum of weights: lane by lane, then the tree 16, 8, 4, 2, 1. Values: a lane has four bytes of each
 * slice and adds the visible keys ascending. Chunks are merged ascending. With one group a block
 * walks all chunks and merges as it goes; with more, each takes its share and writes the results of
 * single chunks, which attention_merge merges with the same operations: the same bits. Who sees what
 * is read on the device, so that a launch can be captured: max_chunks is what a row sees at most.
 *
 * partials: values [T, num_heads, max_chunks, dims], then largest score and sum of weights
 * [T, num_heads, max_chunks, 2]; null with one group. All addresses are multiples of 16. Shared
 * memory: the slots, then floats: per query its dims padded to 16 bytes of keys, 64 weights, and
 * with one group dims again.
 */
#include "kv.cuh"

#define WARPS 4
#define THREADS (32 * WARPS)
#define MOST 4 /* queries of a warp */
#define SLICE 128
#define VECTORS (SLICE / 16)
#define STRIDE (SLICE + 16) /* lanes that read one vector of 32 keys meet no bank twice */
#define SCALES (PAGE * STRIDE)
#define SLOT (SCALES + 4 * 2 * PAGE) /* four groups of 32 dims have scales */
#define SLOTS 3
#define BLOCKS 4 /* at least on a multiprocessor: shared memory allows no more before sm_90, and to
                    reach more the assembler would spill */
#define ALL_LANES 0xffffffffu

struct Args {
    const float *q;
    float *out, *partials;
    const char *k, *v;
    const unsigned short *k_scale, *v_scale;
    int num_rows, num_heads, kv_heads, dims, row_bytes, window;
    float scale;
    int tile, num_groups, num_runs, max_chunks;
    Step step;
};

/* A type of cache: DIMS values in 16 bytes of a key, WORD values in 4 bytes of a value; a chain of a
 * dot is CHAIN vectors of 16 bytes, 32 dims, which is what a scale is of, where there are any. */
struct F32 {
    static constexpr int DIMS = 4, WORD = 1, CHAIN = 8, KEYS = 4;
    static constexpr bool SCALED = false;
    static __device__ __forceinline__ void four(const unsigned (&raw)[4], int, float (&x)[4])
    {
#pragma unroll
        for (int i = 0; i < 4; i++)
            x[i] = __int_as_float(static_cast<int>(raw[i]));
    }
    static __device__ __forceinline__ void word(unsigned raw, float (&x)[WORD])
    {
        x[0] = __int_as_float(static_cast<int>(raw));
    }
};

struct F16 {
    static constexpr int DIMS = 8, WORD = 2, CHAIN = 4, KEYS = 4;
    static constexpr bool SCALED = false;
    static __device__ __forceinline__ void four(const unsigned (&raw)[4], int at, float (&x)[4])
    {
        word(raw[2 * at], x[0], x[1]);
        word(raw[2 * at + 1], x[2], x[3]);
    }
    static __device__ __forceinline__ void word(unsigned raw, float &low, float &high)
    {
        low = half_bits_to_float(static_cast<unsigned short>(raw & 0xffff));
        high = half_bits_to_float(static_cast<unsigned short>(raw >> 16));
    }
    static __device__ __forceinline__ void word(unsigned raw, float (&x)[WORD])
    {
        word(raw, x[0], x[1]);
    }
};

/* Codes without their scales. */
struct Q8 {
    static constexpr int DIMS = 16, WORD = 4, CHAIN = 2, KEYS = 2;
    static constexpr bool SCALED = true;
    static __device__ __forceinline__ void four(const unsigned (&raw)[4], int at, float (&x)[4])
    {
        word(raw[at], x);
    }
    static __device__ __forceinline__ void word(unsigned raw, float (&x)[WORD])
    {
        raw ^= 0x80808080u; /* code + 128, which becomes the last places of 2^23 */
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const unsigned bits = (raw >> 8 * i & 0xff) | 0x4b000000;
            x[i] = __fsub_rn(__int_as_float(static_cast<int>(bits)), 8388736.0f);
        }
    }
};

template <class T, int n> struct Words;
template <> struct Words<float, 1> { using type = float; };
template <> struct Words<float, 2> { using type = float2; };
template <> struct Words<float, 4> { using type = float4; };
template <> struct Words<unsigned, 4> { using type = uint4; };

/* n words that lie side by side, in one access. */
template <class T, int n> __device__ __forceinline__ void load_words(const T *p, T (&x)[n])
{
    using Word = typename Words<T, n>::type;
    const Word word = load(reinterpret_cast<const Word *>(p));
    __builtin_memcpy(x, &word, sizeof word);
}
template <class T, int n> __device__ __forceinline__ void store_words(T *p, const T (&x)[n])
{
    using Word = typename Words<T, n>::type;
    Word word;
    __builtin_memcpy(&word, x, sizeof word);
    store(reinterpret_cast<Word *>(p), word);
}

__device__ __forceinline__ int least(int a, int b) { return a < b ? a : b; }
__device__ __forceinline__ int most(int a, int b) { return a > b ? a : b; }

/* The first position that a row at this position sees. */
__device__ __forceinline__ int first_visible(int window, int position)
{
    return window ? most(0, position - window + 1) : 0;
}

/* Queries begin .. end - 1 of a KV head: rows of one sequence, of which some see positions first ..
 * last - 1. */
struct Run { int begin, end, seq, first, last; };

/* The run of a tile that begins at a query. */
__device__ __forceinline__ Run run_at(const Args &args, int per_head, int begin, int end)
{
    const int row = begin / per_head;
    Run run = {begin, end, load(args.step.row_seqs + row), 0x7fffffff, 0};
    for (int r = row; r * per_head < end; r++) {
        if (load(args.step.row_seqs + r) != run.seq) {
            run.end = r * per_head;
            break;
        }
        const int position = load(args.step.positions + r);
        run.first = least(run.first, first_visible(args.window, position));
        run.last = most(run.last, position + 1);
    }
    return run;
}

/* What a warp knows of its queries, those at index warp + WARPS i of the run. Lane i has query i's
 * position and what is merged of it: the largest score, the sum of weights, and the factors of the
 * last merge. */
struct Mine {
    int count, position;
    float top, sum, keep, take;
};

/* Of the chunk at hand query i sees keys lo[i] .. hi[i] - 1, or none: then lo > hi. */
struct Seen { int lo[MOST], hi[MOST]; };

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

__device__ __forceinline__ float scale_of(const char *slot, int group, int key)
{
    const unsigned short *scales = reinterpret_cast<const unsigned short *>(slot + SCALES);
    return half_bits_to_float(load(scales + group * PAGE + key));
}

/* Add a slice's part to the scores of keys lane and lane + 32; q is the warp's first query there. */
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

/* The scores of query i to weights, 0 where hidden; their largest, and their sum. */
__device__ __forceinline__ float2 softmax(const float (&score)[2], float scale, int lo, int hi,
                                          float *weights)
{
    const int lane = static_cast<int>(threadIdx.x % 32);
    const float lowest = __int_as_float(0xff800000);
    const bool sees[2] = {lane >= lo && lane < hi, lane + 32 >= lo && lane + 32 < hi};
    const float low = sees[0] ? __fmul_rn(score[0], scale) : lowest;
    const float high = sees[1] ? __fmul_rn(score[1], scale) : lowest;
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

/* Where a warp's things lie. */
struct Place {
    float *q, *weights, *totals; /* of its first query; the others are WARPS queries on */
    int q_stride;
};

/* Where the largest scores and the sums of weights begin in partials. */
__device__ __forceinline__ long long tails_at(const Args &args)
{
    return static_cast<long long>(args.num_rows) * args.num_heads * args.max_chunks * args.dims;
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

__device__ __forceinline__ Mine queries_of(const Args &args, const Run &run, int warp)
{
    const int lane = static_cast<int>(threadIdx.x % 32), query = run.begin + warp + WARPS * lane;
    Mine mine = {};
    mine.count = (run.end - run.begin - warp + WARPS - 1) / WARPS;
    mine.top = __int_as_float(0xff800000);
    if (lane < mine.count)
        mine.position = load(args.step.positions + query / (args.num_heads / args.kv_heads));
    return mine;
}

/* Where a query's results of a chunk lie among the partials. */
__device__ __forceinline__ long long partial_of(const Args &args, const Run &run, int head,
                                                int position, int i, int chunk)
{
    const long long row = head_of(args, run, head, threadIdx.x / 32 + WARPS * i);
    return row * args.max_chunks + chunk - first_visible(args.window, position) / PAGE;
}

/* Scores to weights, and the sums of a chunk to those of the queries or to partials. */
__device__ __forceinline__ void weigh(const Args &args, const Run &run, int head, int chunk,
                                      const float (&score)[MOST][2], const Place &place, Mine &mine)
{
    const int lane = static_cast<int>(threadIdx.x % 32);
    float2 *tails = reinterpret_cast<float2 *>(args.partials + tails_at(args));
    const Seen seen = look_at(args, mine, chunk);
    float2 own = make_float2(0.0f, 0.0f);
    bool sees = false; /* this lane's query */
#pragma unroll
    for (int i = 0; i < MOST; i++) {
        if (seen.lo[i] >= seen.hi[i])
            continue;
        const float2 tail = softmax(score[i], args.scale, seen.lo[i], seen.hi[i],
                                    place.weights + WARPS * i * PAGE);
        if (lane != i)
            continue;
        sees = true, own = tail;
        if (args.num_groups > 1)
            store(tails + partial_of(args, run, head, mine.position, i, chunk), tail);
    }
    if (sees) {
        mine.top = merge_tops(mine.top, own.x, mine.keep, mine.take);
        mine.sum = merged(mine.sum, mine.keep, own.y, mine.take);
    }
}

/* A slice of a chunk's weighted values, merged or kept apart. */
template <class Type>
__device__ __forceinline__ void keep_values(const Args &args, const Run &run, int head, int chunk,
                                            int dim, const float (&sums)[MOST][Type::WORD],
                                            const Place &place, const Mine &mine,
                                            const Seen &seen)
{
#pragma unroll
    for (int i = 0; i < MOST; i++) {
        if (seen.lo[i] >= seen.hi[i])
            continue;
        const int position = __shfl_sync(ALL_LANES, mine.position, i);
        const float keep = __shfl_sync(ALL_LANES, mine.keep, i);
        const float take = __shfl_sync(ALL_LANES, mine.take, i);
        if (dim >= args.dims)
            continue;
        if (args.num_groups > 1) {
            const long long at = partial_of(args, run, head, position, i, chunk);
            store_words(args.partials + at * args.dims + dim, sums[i]);
            continue;
        }
        float total[Type::WORD], *p = place.totals + WARPS * i * args.dims + dim;
        load_words(p, total);
#pragma unroll
        for (int d = 0; d < Type::WORD; d++)
            total[d] = merged(total[d], keep, sums[i][d], take);
        store_words(p, total);
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
        const float inverse = __fdiv_rn(1.0f, __shfl_sync(ALL_LANES, mine.sum, i));
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
    Place place = {floats, floats + args.tile * stride, floats + args.tile * (stride + PAGE), stride};
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
        const int first = run.first / PAGE, last = (run.last + PAGE - 1) / PAGE;
        const int share = (last - first + args.num_groups - 1) / args.num_groups;
        const int from = first + group * share, to = least(last, from + share);
        if (from < to)
            walk<Type>(args, run, head, from, to);
    }
}

#define PARAMETERS                                                                               \
    const float *q, float *out, float *partials, const char *k, const char *v,                   \
        const unsigned short *k_scale, const unsigned short *v_scale, int num_rows,              \
        int num_heads, int kv_heads, int dims, int row_bytes, int window, float scale, int tile, \
        int num_groups, int num_runs, int max_chunks, const int *positions, const int *row_seqs, \
        const int *pages, int table_width, int ring_pages
#define ARGUMENTS                                                                                \
    Args                                                                                         \
    {                                                                                            \
        q, out, partials, k, v, k_scale, v_scale, num_rows, num_heads, kv_heads, dims,           \
            row_bytes, window, scale, tile, num_groups, num_runs, max_chunks,                    \
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

/* The merge of single chunks: a warp is one head of one row and 128 of its dims, a lane four of
 * them. Grid: ceil(T * num_heads / WARPS) in x, ceil(dims / 128) in y. 32 chunks at a time: a lane
 * has one, tops by a scan, then factors, all at once; then the sums, chunk by chunk. */
template <bool aligned>
__device__ __forceinline__ void merge(const float *partials, float *out, const int *positions,
                                      int num_rows, int num_heads, int dims, int window,
                                      int max_chunks)
{
    const int lane = static_cast<int>(threadIdx.x % 32);
    const long long count = static_cast<long long>(num_rows) * num_heads;
    const long long head = static_cast<long long>(blockIdx.x) * WARPS + threadIdx.x / 32;
    const int dim = static_cast<int>(blockIdx.y) * 128 + 4 * lane;
    if (head >= count)
        return;
    const int position = load(positions + head / num_heads);
    const int num_chunks = position / PAGE - first_visible(window, position) / PAGE + 1;
    const float *values = partials + head * max_chunks * dims + dim;
    const float2 *tails = reinterpret_cast<const float2 *>(partials + count * max_chunks * dims) +
                          head * max_chunks;
    float sum = 0.0f, before = __int_as_float(0xff800000);
    float4 total = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    for (int start = 0; start < num_chunks; start += 32) {
        const int n = least(32, num_chunks - start);
        float2 tail = make_float2(__int_as_float(0xff800000), 0.0f);
        if (lane < n)
            tail = load(tails + start + lane);
        float top = tail.x; /* of the chunks up to this lane's */
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
                   int num_heads, int dims, int window, int max_chunks)
{
    merge<true>(partials, out, positions, num_rows, num_heads, dims, window, max_chunks);
}

extern "C" __global__ void __launch_bounds__(THREADS)
attention_merge_x1(const float *partials, float *out, const int *positions, int num_rows,
                   int num_heads, int dims, int window, int max_chunks)
{
    merge<false>(partials, out, positions, num_rows, num_heads, dims, window, max_chunks);
}
