/* sample: draw a token from each row of logits; specrt/reference/sampling.py says what a draw is.
 *
 * logits is [T, size] floats. Its entries that bias, penalties or suppression change are changed in
 * place for the time of the draw and put back: saved is [T, max_edits]. tokens, positions, row_seqs
 * and row_offsets are the step's, draws has one of each of its sequences, edits are theirs.
 * out is [T, 5]: the token; where log probabilities are asked for also the bits of the largest raw
 * logit (+inf counting as the largest float), the low and the high word of the sum of rint(2^40
 * exp(x - largest)) over the raw logits, and the bits of the token's own.
 *
 * Grid T: a block is one row, so rows stand alone. The _x4 entry wants size % 4 = 0 and logits at a
 * multiple of 16. Weights are whole numbers, so their sums need no order, and the token is the
 * reference's where no subnormal number arises. Shared memory: a Shared.
 */
#include "common.cuh"

#define THREADS 512
#define WARPS (THREADS / 32) /* at most 32, so that a lane can have one each */
#define BIN_BITS 9           /* a thread has a bin */
#define FLAG_SEEN 1 /* the id is in the history */
#define FLAG_ENDS 2 /* it is not drawn before min_total */

typedef unsigned long long u64;

const u64 ALL = ~0ull;
const float LEAST = -29.0f; /* its weight is 0 */

struct Draw { /* of a sequence; specrt/kernels/sample.py has the same */
    u64 seed;
    double top_p;
    float scale, least; /* 1 / temperature, 0 for greedy; log(min_p), or LEAST if that is more */
    float repetition, presence, frequency;
    int top_k; /* 0 for none */
    int min_total;
    int first_edit, num_edits;
    int logprobs;
    int unused[2];
};

struct Shared {
    u64 bins[THREADS];
    u64 partial[WARPS];
    u64 found[2];
};

/* A row, and what of it is kept: scaled logits from least on, and no key above cut. */
struct Row {
    const float *x;
    int size;
    float max, scale, least;
    u64 cut;
};

/* Ascending keys are descending logits, then ascending ids; NaN counts as -inf, -0 as 0. */
__device__ __forceinline__ u64 order_key(float x, int id)
{
    unsigned bits = static_cast<unsigned>(__float_as_int(x));
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        bits = 0xff800000u;
    if (bits == 0x80000000u)
        bits = 0;
    bits ^= bits >> 31 ? 0xffffffffu : 0x80000000u;
    return static_cast<u64>(~bits) << 32 | static_cast<unsigned>(id);
}

__device__ __forceinline__ float key_logit(u64 key)
{
    unsigned bits = ~static_cast<unsigned>(key >> 32);
    bits ^= bits >> 31 ? 0x80000000u : 0xffffffffu;
    return __int_as_float(static_cast<int>(bits));
}

__device__ __forceinline__ float capped(float x)
{
    const float most = __int_as_float(0x7f7fffff);
    return most < x ? most : x;
}

/* rint(2^40 exp(t)) for LEAST <= t <= 0. */
__device__ __forceinline__ u64 weight_of(float t)
{
    const float rounding = 12582912.0f; /* 3 * 2^22: adding it rounds to the nearest integer */
    const float n = __fsub_rn(__fadd_rn(__fmul_rn(t, 1.4426950408889634f), rounding), rounding);
    const float r = __fsub_rn(__fsub_rn(t, __fmul_rn(n, 0.693359375f)),
                              __fmul_rn(n, -2.12194440e-4f));
    float p = 1.9875691500e-4f;
    p = __fadd_rn(__fmul_rn(p, r), 1.3981999507e-3f);
    p = __fadd_rn(__fmul_rn(p, r), 8.3334519073e-3f);
    p = __fadd_rn(__fmul_rn(p, r), 4.1665795894e-2f);
    p = __fadd_rn(__fmul_rn(p, r), 1.6666665459e-1f);
    p = __fadd_rn(__fmul_rn(p, r), 5.0000001201e-1f);
    p = __fadd_rn(__fadd_rn(__fmul_rn(p, __fmul_rn(r, r)), r), 1.0f);
    const unsigned bits = static_cast<unsigned>(__float_as_int(p));
    const unsigned mantissa = (bits & 0x7fffffu) | 0x800000u;
    const int shift = static_cast<int>(bits >> 23) - 150 + static_cast<int>(n) + 40;
    if (shift >= 0)
        return static_cast<u64>(mantissa) << shift;
    if (shift < -25)
        return 0;
    const unsigned half = (1u << (-shift - 1)) - 1 + (mantissa >> -shift & 1); /* ties to even */
    return (mantissa + half) >> -shift;
}

/* Whether a logit is kept, and its t: 0 for the largest, below for all others. */
__device__ __forceinline__ bool keeps(const Row &row, float x, int id, float &t)
{
    t = __fmul_rn(__fsub_rn(capped(x), row.max), row.scale);
    return t >= row.least && order_key(x, id) <= row.cut; /* NaN is not */
}

/* How far below the largest, in steps of which 2^(2 BIN_BITS) cover all that has a weight. */
__device__ __forceinline__ unsigned distance(float t)
{
    return static_cast<unsigned>(__fmul_rn(t, -8192.0f));
}

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

/* The upper half of a product. */
__device__ __forceinline__ u64 multiply_high(u64 a, u64 b)
{
    const u64 a0 = a & 0xffffffffu, a1 = a >> 32, b0 = b & 0xffffffffu, b1 = b >> 32;
    const u64 middle = a1 * b0 + (a0 * b0 >> 32), other = a0 * b1 + (middle & 0xffffffffu);
    return a1 * b1 + (middle >> 32) + (other >> 32);
}

/* 64 random bits of Philox4x32-10. */
__device__ __forceinline__ u64 philox(u64 seed, u64 position)
{
    unsigned c0 = static_cast<unsigned>(position), c1 = static_cast<unsigned>(position >> 32);
    unsigned k0 = static_cast<unsigned>(seed), k1 = static_cast<unsigned>(seed >> 32);
    unsigned c2 = 0, c3 = 0;
    for (int i = 0; i < 10; i++) {
        const u64 p0 = 0xD2511F53ull * c0, p1 = 0xCD9E8D57ull * c2;
        c0 = static_cast<unsigned>(p1 >> 32) ^ c1 ^ k0;
        c2 = static_cast<unsigned>(p0 >> 32) ^ c3 ^ k1;
        c1 = static_cast<unsigned>(p1);
        c3 = static_cast<unsigned>(p0);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return static_cast<u64>(c0) << 32 | c1;
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

/* A logit after suppression, bias and penalties; seen and count are of the history and of the
 * output before the token that is drawn. */
__device__ __forceinline__ float edited(float x, const Draw *draw, bool suppressed, float bias,
                                        bool seen, int count)
{
    const float repetition = load(&draw->repetition), frequency = load(&draw->frequency);
    if (suppressed)
        x = __int_as_float(static_cast<int>(0xff800000u));
    if (bias != 0.0f)
        x = __fadd_rn(x, bias);
    if (seen)
        x = x > 0.0f ? __fdiv_rn(x, repetition) : __fmul_rn(x, repetition);
    if (count > 0)
        x = __fsub_rn(x, __fadd_rn(load(&draw->presence),
                                   __fmul_rn(frequency, __int2float_rn(count))));
    return x;
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

extern "C" __global__ void __launch_bounds__(THREADS)
sample_x4(float *logits, float *saved, const Draw *draws, const int4 *edits, const int *tokens,
          const int *positions, const int *row_seqs, const int *row_offsets, int *out, int size,
          int max_edits)
{
    sample<true>(logits, saved, draws, edits, tokens, positions, row_seqs, row_offsets, out, size,
                 max_edits);
}

extern "C" __global__ void __launch_bounds__(THREADS)
sample_x1(float *logits, float *saved, const Draw *draws, const int4 *edits, const int *tokens,
          const int *positions, const int *row_seqs, const int *row_offsets, int *out, int size,
          int max_edits)
{
    sample<false>(logits, saved, draws, edits, tokens, positions, row_seqs, row_offsets, out, size,
                  max_edits);
}
