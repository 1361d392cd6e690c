/* sample: draw a token from each row of logits; specrt/reference/sampling.py says what a draw is.
 *
 * logits is [T, size] floats. Its entries that bias, penalties or suppression change are changed in
 * place for the time of the draw and put back: saved is [T, max_edits]. tokens, positions, row_seqs
 * and row_offsets are the step's, draws has one of each of its sequences, edits are theirs.
 * out is [T, 5]: the token; where log probabilities are asked for also the bits of the largest raw
 * logit (+inf counting as the largest float), the low and the high word of the sum of rint(2^40
 * exp(x - largest)) over the raw logits, and the bits of the token's own.
 *
 * Grid T: a block is one row, so rows stand alone. sample_aligned wants size % 4 = 0 and logits at
 * a multiple of 16. Weights are whole numbers, so their sums need no order, and the token is the
 * reference's where no subnormal number arises. Shared memory: a Shared.
 */
#include "draw.cuh"

#define THREADS 512 /* 2^BIN_BITS: a thread has a bin */
#define WARPS (THREADS / 32) /* at most 32, so that a lane can have one each */

struct Shared {
    u64 bins[THREADS];
    u64 partial[WARPS];
    u64 found[2];
};

/* Call visit(x, id) for the ids of one of num_places that have begin .. end - 1 by turns: four at a
 * time if aligned, where all three are multiples of four. */
template <bool aligned, class Visit>
__device__ __forceinline__ void visit_ids(const float *x, int begin, int end, int place,
                                          int num_places, Visit visit)
{
    if constexpr (aligned) {
        for (int id = begin + 4 * place; id < end; id += 4 * num_places) {
            const float4 v = load4<true>(x + id, 4);
            visit(v.x, id);
            visit(v.y, id + 1);
            visit(v.z, id + 2);
            visit(v.w, id + 3);
        }
    } else {
        for (int id = begin + place; id < end; id += num_places)
            visit(load(x + id), id);
    }
}

template <bool aligned, class Visit>
__device__ __forceinline__ void visit_row(const Row &row, Visit visit)
{
    visit_ids<aligned>(row.x, 0, row.size, static_cast<int>(threadIdx.x), THREADS, visit);
}

/* The least value of all threads, for each of them. */
__device__ __forceinline__ u64 block_min(u64 value, Shared *shared)
{
    __syncthreads(); /* nobody reads partial any more */
    for (int round = 0; round < 2; round++) {
        for (int flip = 16; flip > 0; flip /= 2) {
            const u64 other = __shfl_xor_sync(0xffffffffu, value, flip);
            value = other < value ? other : value;
        }
        if (round)
            break;
        if (threadIdx.x % 32 == 0)
            store(shared->partial + threadIdx.x / 32, value);
        __syncthreads();
        value = load(shared->partial + threadIdx.x % WARPS);
    }
    return value;
}

__device__ __forceinline__ u64 warp_scan(u64 value)
{
    for (unsigned by = 1; by < 32; by *= 2) {
        const u64 lower = __shfl_up_sync(0xffffffffu, value, by);
        value += threadIdx.x % 32 >= by ? lower : 0;
    }
    return value;
}

struct Sums {
    u64 before, total; /* of the threads before this one; of all */
};

__device__ __forceinline__ Sums block_scan(u64 value, Shared *shared)
{
    const unsigned warp = threadIdx.x / 32;
    const u64 own = warp_scan(value);
    __syncthreads(); /* nobody reads partial any more */
    if (threadIdx.x % 32 == 31)
        store(shared->partial + warp, own);
    __syncthreads();
    const unsigned lane = threadIdx.x % 32;
    const u64 warps = warp_scan(lane < WARPS ? load(shared->partial + lane) : 0);
    const u64 earlier = __shfl_sync(0xffffffffu, warps, static_cast<int>((warp + 31) % 32));
    return {own - value + (warp ? earlier : 0), __shfl_sync(0xffffffffu, warps, 31)};
}

/* The thread in whose value the sum reaches need, 1 <= need <= total; need becomes what of it the
 * threads before leave. */
__device__ __forceinline__ int locate(const Sums &sums, u64 value, u64 &need, Shared *shared)
{
    if (sums.before < need && need - sums.before <= value) {
        store(shared->found, static_cast<u64>(threadIdx.x));
        store(shared->found + 1, need - sums.before);
    }
    __syncthreads();
    const int place = static_cast<int>(load(shared->found));
    need = load(shared->found + 1);
    __syncthreads(); /* found may be written again */
    return place;
}

__device__ __forceinline__ void clear_bins(Shared *shared)
{
    store(shared->bins + threadIdx.x, static_cast<u64>(0));
    __syncthreads();
}

/* The least key such that what is kept up to it weighs at least need, which is at least 1, or is as
 * many if it counts; ALL if everything is less. Bins by distance, then by where it lies between two
 * of those, then by key among those that even that does not tell apart. */
template <bool aligned>
__device__ __forceinline__ u64 find_cut(const Row &row, u64 need, bool counts, Shared *shared)
{
    const auto weigh = [=](float t) -> u64 { return counts ? 1 : weight_of(t); };
    unsigned chosen = 0;
    float t;
    for (int shift = BIN_BITS; shift >= 0; shift -= BIN_BITS) {
        clear_bins(shared);
        visit_row<aligned>(row, [&](float x, int id) {
            if (keeps(row, x, id, t) && distance(t) >> shift >> BIN_BITS == chosen)
                atomicAdd(shared->bins + (distance(t) >> shift) % THREADS, weigh(t));
        });
        __syncthreads();
        const u64 value = load(shared->bins + threadIdx.x);
        const Sums sums = block_scan(value, shared);
        if (sums.total < need)
            return ALL;
        chosen = chosen << BIN_BITS | static_cast<unsigned>(locate(sums, value, need, shared));
    }
    u64 low = 0, high = ALL;
    for (;;) {
        u64 first = ALL, last = 0;
        visit_row<aligned>(row, [&](float x, int id) {
            const u64 key = order_key(x, id);
            if (keeps(row, x, id, t) && distance(t) == chosen && key >= low && key <= high) {
                first = key < first ? key : first;
                last = key > last ? key : last;
            }
        });
        first = block_min(first, shared);
        last = ~block_min(~last, shared);
        if (first == last)
            return last;
        int shift = 0;
        while ((last - first) >> shift >= THREADS)
            shift++;
        clear_bins(shared);
        visit_row<aligned>(row, [&](float x, int id) {
            const u64 key = order_key(x, id);
            if (keeps(row, x, id, t) && distance(t) == chosen && key >= first && key <= last &&
                key >= low && key <= high)
                atomicAdd(shared->bins + ((key - first) >> shift), weigh(t));
        });
        __syncthreads();
        const u64 value = load(shared->bins + threadIdx.x);
        const Sums sums = block_scan(value, shared);
        low = first + (static_cast<u64>(locate(sums, value, need, shared)) << shift);
        high = low + ((static_cast<u64>(1) << shift) - 1);
    }
}

template <bool aligned> __device__ __forceinline__ u64 total_weight(const Row &row, Shared *shared)
{
    u64 sum = 0;
    float t;
    visit_row<aligned>(row, [&](float x, int id) {
        sum += keeps(row, x, id, t) ? weight_of(t) : 0;
    });
    return block_scan(sum, shared).total;
}

/* The least key of the row: the largest logit and its lowest id. */
template <bool aligned> __device__ __forceinline__ u64 find_best(const Row &row, Shared *shared)
{
    u64 best = ALL;
    visit_row<aligned>(row, [&](float x, int id) {
        const u64 key = order_key(x, id);
        best = key < best ? key : best;
    });
    return block_min(best, shared);
}

/* Inverse CDF ascending by id over what is kept: each warp weighs a part of the ids, then those of
 * the warp in question are shared out again, until a thread has one. */
template <bool aligned>
__device__ __forceinline__ int pick(const Row &row, u64 uniform, Shared *shared)
{
    const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
    int begin = 0, end = row.size;
    u64 need = 0;
    float t;
    for (;;) {
        const bool last = end - begin <= THREADS;
        const int part = last ? 1 : (end - begin + 4 * WARPS - 1) / (4 * WARPS) * 4;
        u64 value = 0;
        if (last) {
            const int id = begin + static_cast<int>(threadIdx.x);
            if (id < end && keeps(row, load(row.x + id), id, t))
                value = weight_of(t);
        } else {
            const int own = begin + warp * part, next = own + part < end ? own + part : end;
            visit_ids<aligned>(row.x, own, next, lane, 32, [&](float x, int id) {
                value += keeps(row, x, id, t) ? weight_of(t) : 0;
            });
            for (int flip = 16; flip > 0; flip /= 2)
                value += __shfl_xor_sync(0xffffffffu, value, flip);
            value = lane ? 0 : value;
        }
        const Sums sums = block_scan(value, shared);
        if (!need)
            need = multiply_high(uniform, sums.total) + 1;
        const int place = locate(sums, value, need, shared);
        if (last)
            return begin + place;
        begin += place / 32 * part;
        end = begin + part < end ? begin + part : end;
    }
}

/* What top-k and top-p keep, and a draw from it. */
template <bool aligned>
__device__ __forceinline__ int draw_token(Row &row, const Draw *draw, u64 position, Shared *shared)
{
    for (int filter = 0; filter < 2; filter++) { /* top-k, then top-p of what it leaves */
        u64 need = static_cast<u64>(load(&draw->top_k));
        const double top_p = load(&draw->top_p);
        if (filter) {
            const u64 total = top_p < 1 ? total_weight<aligned>(row, shared) : 0;
            const double share = top_p * static_cast<double>(total);
            need = static_cast<u64>(share);
            need += static_cast<double>(need) < share; /* rounded up */
            need = !need && total ? 1 : need > total ? total : need;
        }
        if (need)
            row.cut = find_cut<aligned>(row, need, !filter, shared);
    }
    return pick<aligned>(row, philox(load(&draw->seed), position), shared);
}

/* Change the logits that the sequence's edits name: the draft tokens up to this row, of which the
 * edits name each, count as output. */
__device__ __forceinline__ void edit(float *x, float *saved, const Draw *draw, const int4 *edits,
                                     const int *draft, int num_draft, bool suppress)
{
    const int first = load(&draw->first_edit), num_edits = load(&draw->num_edits);
    for (int i = static_cast<int>(threadIdx.x); i < num_edits; i += THREADS) {
        const int4 one = load(edits + first + i);
        int count = 0;
        for (int j = 0; j < num_draft; j++)
            count += load(draft + j) == one.x;
        const bool seen = one.z & FLAG_SEEN || count > 0;
        const float raw = load(x + one.x);
        store(saved + i, raw);
        store(x + one.x, edited(raw, draw, suppress && one.z & FLAG_ENDS, __int_as_float(one.y),
                                seen, one.w + count));
    }
    __syncthreads();
}

__device__ __forceinline__ void put_back(float *x, const float *saved, const Draw *draw,
                                         const int4 *edits)
{
    const int first = load(&draw->first_edit), num_edits = load(&draw->num_edits);
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < num_edits; i += THREADS)
        store(x + load(edits + first + i).x, load(saved + i));
    __syncthreads();
}

template <bool aligned>
__device__ __forceinline__ void sample(float *logits, float *saved, const Draw *draws,
                                       const int4 *edits, const int *tokens, const int *positions,
                                       const int *row_seqs, const int *row_offsets, int *out,
                                       int size, int max_edits)
{
    Shared *shared = shared_block<Shared>();
    const long long number = blockIdx.x;
    const int seq = load(row_seqs + number), first = load(row_offsets + seq);
    const Draw *draw = draws + seq;
    float *x = logits + number * size;
    saved += number * max_edits;
    const int position = load(positions + number) + 1;
    edit(x, saved, draw, edits, tokens + first + 1, static_cast<int>(number) - first,
         position < load(&draw->min_total));
    Row row = {x, size, 0.0f, load(&draw->scale), load(&draw->least), ALL};
    const u64 best = find_best<aligned>(row, shared);
    row.max = capped(key_logit(best));
    int token = static_cast<int>(best & 0xffffffffu);
    if (row.scale > 0.0f && row.max >= -__int_as_float(0x7f7fffff))
        token = draw_token<aligned>(row, draw, static_cast<u64>(position), shared);
    put_back(x, saved, draw, edits);
    out += 5 * number;
    if (threadIdx.x == 0)
        store(out, token);
    if (!load(&draw->logprobs))
        return;
    Row raw = {x, size, 0.0f, 1.0f, LEAST, ALL};
    raw.max = capped(key_logit(find_best<aligned>(raw, shared)));
    const u64 total = total_weight<aligned>(raw, shared);
    if (threadIdx.x == 0) {
        store(out + 1, __float_as_int(raw.max));
        store(out + 2, static_cast<int>(total & 0xffffffffu));
        store(out + 3, static_cast<int>(total >> 32));
        store(out + 4, __float_as_int(load(x + token)));
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 2)
sample_aligned(float *logits, float *saved, const Draw *draws, const int4 *edits,
               const int *tokens, const int *positions, const int *row_seqs,
               const int *row_offsets, int *out, int size, int max_edits)
{
    sample<true>(logits, saved, draws, edits, tokens, positions, row_seqs, row_offsets, out, size,
                 max_edits);
}

extern "C" __global__ void __launch_bounds__(THREADS, 2)
sample_any(float *logits, float *saved, const Draw *draws, const int4 *edits,
           const int *tokens, const int *positions, const int *row_seqs,
           const int *row_offsets, int *out, int size, int max_edits)
{
    sample<false>(logits, saved, draws, edits, tokens, positions, row_seqs, row_offsets, out, size,
                  max_edits);
}
