/* gated_delta: the gated delta rule; specrt/reference/gated_delta.py says what it computes.
 *
 * qkv is [T, 2 * key_heads * dk + value_heads * dv], alpha and beta are [T, value_heads], a and
 * dt_bias [value_heads], states is [slots, 2, value_heads, dk, dv], the logs are
 * [slots, log_rows, key_heads * dk | value_heads * dv | value_heads], out is [T, value_heads * dv],
 * states_out [T, value_heads, dk, dv] or null. A block takes COLUMNS columns of one head's state
 * through all rows of one sequence, in shared memory: it reads them once and writes them once. Grid
 * (ceil(dv / COLUMNS), value_heads, num_seqs). Thread (c, s) = threadIdx.x % COLUMNS, / COLUMNS has
 * column c of the rows s, s + SPLITS, ..: sums over dk are chains of fmas per s, ascending, then
 * the tree 4, 2, 1 over s; a sum of squares goes over all threads (block_sum). Shared memory,
 * floats: dk * COLUMNS of the state, 2 dk of q and k, SPLITS * COLUMNS and THREADS / 32 of sums.
 */
#include "common.cuh"

#define COLUMNS 32
#define SPLITS 8
#define THREADS (COLUMNS * SPLITS)
#define BLOCKS 3 /* an SM: so many registers without a spill, loops over dk being unrolled little */

struct Heads {
    const float *alpha, *beta, *a, *dt_bias;
    float *log_k, *log_delta, *log_decay;
    int key_heads, value_heads, dk, dv, log_rows;
    float eps, scale;
};

/* Shared memory of a block. */
struct Block {
    float *m, *q, *k, *sums, *warps;
};

/* The column of a thread: whether there is one, and where its values lie in rows and logs. */
struct Column {
    bool there;
    int head, keys, values; /* keys and values of a row, of all heads */
    int key, value;         /* the first of its keys, and its value */
    long long log;          /* the first row of its slot */
};

/* log(1 + exp x) = max(x, 0) + 2 atanh(e / (2 + e)) with e = exp(-|x|). */
__device__ __forceinline__ float softplus(float x)
{
    const float e = exp_of(x < 0.0f ? x : __fsub_rn(0.0f, x));
    const float s = __fdiv_rn(e, __fadd_rn(2.0f, e)), z = __fmul_rn(s, s);
    float p = 1.0f / 15;
#pragma unroll
    for (int odd = 13; odd > 1; odd -= 2)
        p = __fmaf_rn(p, z, __fdiv_rn(1.0f, static_cast<float>(odd)));
    const float twice = __fadd_rn(s, s);
    return __fadd_rn(x > 0.0f ? x : 0.0f, __fmaf_rn(__fmul_rn(twice, z), p, twice));
}

/* The sum over s for each thread of a column. */
__device__ __forceinline__ float column_sum(const Block &b, float value)
{
    const int c = static_cast<int>(threadIdx.x % COLUMNS);
    store(b.sums + threadIdx.x, value);
    __syncthreads();
    float sums[SPLITS];
#pragma unroll
    for (int s = 0; s < SPLITS; s++)
        sums[s] = load(b.sums + s * COLUMNS + c);
#pragma unroll
    for (int width = SPLITS / 2; width > 0; width /= 2)
#pragma unroll
        for (int s = 0; s < width; s++)
            sums[s] = __fadd_rn(sums[s], sums[s + width]);
    __syncthreads();
    return sums[0];
}

/* to = x / sqrt(sum x^2 + eps) * scale, in shared memory. */
__device__ __forceinline__ void normalise(const Heads &h, const Block &b, const float *x,
                                          float scale, float *to)
{
    float sum = 0.0f;
    for (int i = static_cast<int>(threadIdx.x); i < h.dk; i += THREADS) {
        const float v = load(x + i);
        sum = __fmaf_rn(v, v, sum);
    }
    sum = block_sum<THREADS / 32>(sum, b.warps);
    const float factor = __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(sum, h.eps)));
    for (int i = static_cast<int>(threadIdx.x); i < h.dk; i += THREADS)
        store(to + i, __fmul_rn(__fmul_rn(load(x + i), factor), scale));
    __syncthreads();
}

/* This thread's part of its column to a state. */
__device__ __forceinline__ void write_column(const Heads &h, const float *m, float *to)
{
#pragma unroll 4
    for (int i = static_cast<int>(threadIdx.x / COLUMNS); i < h.dk; i += SPLITS)
        store(to + static_cast<long long>(i) * h.dv, load(m + i * COLUMNS));
}

/* This thread's part of its column: that of a state behind the logged rows of those positions. */
__device__ __forceinline__ void read_column(const Heads &h, const Column &at, const float *from,
                                            int first, int end, float *m)
{
    const int s = static_cast<int>(threadIdx.x / COLUMNS);
    const bool something = at.there && first > 0; /* before position 0 a state is zero */
#pragma unroll 4
    for (int i = s; i < h.dk; i += SPLITS)
        store(m + i * COLUMNS, something ? load(from + static_cast<long long>(i) * h.dv) : 0.0f);
    for (int p = first; p < end; p++) {
        const long long place = at.log + p % h.log_rows;
        const float g = load(h.log_decay + place * h.value_heads + at.head);
        const float delta = at.there ? load(h.log_delta + place * at.values + at.value) : 0.0f;
        const float *k = h.log_k + place * at.keys + at.key;
#pragma unroll 4
        for (int i = s; i < h.dk; i += SPLITS)
            store(m + i * COLUMNS,
                  __fmaf_rn(load(k + i), delta, __fmul_rn(load(m + i * COLUMNS), g)));
    }
}

/* What a row's head forgets, g, and how fast it learns. */
__device__ __forceinline__ float2 gates(const Heads &h, int row, int head)
{
    const float raw = load(h.alpha + row * h.value_heads + head);
    const float step = softplus(__fadd_rn(raw, load(h.dt_bias + head)));
    const float e = exp_of(__fsub_rn(0.0f, load(h.beta + row * h.value_heads + head)));
    return make_float2(exp_of(__fmul_rn(load(h.a + head), step)),
                       __fdiv_rn(1.0f, __fadd_rn(1.0f, e)));
}

/* One row: its delta in this thread's column, and what is read there. */
__device__ __forceinline__ float2 run_row(const Heads &h, const Block &b, const Column &at,
                                          const float *x, float2 gate, float *m)
{
    const int s = static_cast<int>(threadIdx.x / COLUMNS);
    normalise(h, b, x + at.key, h.scale, b.q);
    normalise(h, b, x + at.keys + at.key, 1.0f, b.k);
    float read = 0.0f, o = 0.0f;
#pragma unroll 4
    for (int i = s; i < h.dk; i += SPLITS) {
        const float value = __fmul_rn(load(m + i * COLUMNS), gate.x);
        store(m + i * COLUMNS, value);
        read = __fmaf_rn(load(b.k + i), value, read);
    }
    read = column_sum(b, read);
    const float v = at.there ? load(x + 2 * at.keys + at.value) : 0.0f;
    const float delta = __fmul_rn(gate.y, __fsub_rn(v, read));
#pragma unroll 4
    for (int i = s; i < h.dk; i += SPLITS) {
        const float value = __fmaf_rn(load(b.k + i), delta, load(m + i * COLUMNS));
        store(m + i * COLUMNS, value);
        o = __fmaf_rn(load(b.q + i), value, o);
    }
    return make_float2(delta, column_sum(b, o));
}

/* The row's k, delta and g for later steps, k once for the heads that share it. */
__device__ __forceinline__ void log_row(const Heads &h, const Block &b, const Column &at,
                                        int position, float g, float delta)
{
    const long long place = at.log + position % h.log_rows;
    if (threadIdx.x < COLUMNS && at.there)
        store(h.log_delta + place * at.values + at.value, delta);
    if (blockIdx.x == 0 && threadIdx.x == 0)
        store(h.log_decay + place * h.value_heads + at.head, g);
    if (blockIdx.x == 0 && at.head < h.key_heads)
        for (int i = static_cast<int>(threadIdx.x); i < h.dk; i += THREADS)
            store(h.log_k + place * at.keys + at.key + i, load(b.k + i));
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
gated_delta(const float *qkv, const float *alpha, const float *beta, const float *a,
            const float *dt_bias, float *states, float *log_k, float *log_delta, float *log_decay,
            float *out, float *states_out, const int *positions, const int *row_offsets,
            const int *slots, const int *lives, const int *pendings, int key_heads, int value_heads,
            int dk, int dv, int log_rows, int most_kept, float eps, float scale)
{
    const Heads h = {alpha, beta, a, dt_bias, log_k, log_delta, log_decay,
                     key_heads, value_heads, dk, dv, log_rows, eps, scale};
    const int seq = static_cast<int>(blockIdx.z), head = static_cast<int>(blockIdx.y);
    const int begin = load(row_offsets + seq), rows = load(row_offsets + seq + 1) - begin;
    if (rows <= 0)
        return;
    const int column = static_cast<int>(blockIdx.x * COLUMNS + threadIdx.x % COLUMNS);
    const int slot = load(slots + seq), live = load(lives + seq), start = load(positions + begin);
    const Column at = {column < dv, head, key_heads * dk, value_heads * dv,
                       head % key_heads * dk, head * dv + column,
                       static_cast<long long>(slot) * log_rows};
    const long long size = static_cast<long long>(dk) * dv, buffer = value_heads * size;
    float *const both = states + 2 * slot * buffer + head * size + column;
    float *const to = both + (1 - live) * buffer;
    float *shared = shared_block<float>();
    const Block b = {shared, shared + dk * COLUMNS, shared + dk * (COLUMNS + 1),
                     shared + dk * (COLUMNS + 2), shared + dk * (COLUMNS + 2) + THREADS};
    float *m = b.m + threadIdx.x % COLUMNS; /* m[i * COLUMNS] is row i of the column */
    read_column(h, at, both + live * buffer, start - load(pendings + seq), start, m);
    if (rows <= most_kept && at.there)
        write_column(h, m, to);
    for (int row = begin; row < begin + rows; row++) {
        const float2 gate = gates(h, row, head);
        const float *x = qkv + static_cast<long long>(row) * (2 * at.keys + at.values);
        const float2 made = run_row(h, b, at, x, gate, m);
        if (threadIdx.x < COLUMNS && at.there)
            store(out + static_cast<long long>(row) * at.values + at.value, made.y);
        if (rows <= most_kept)
            log_row(h, b, at, start + row - begin, gate.x, made.x);
        if (states_out && at.there)
            write_column(h, m, states_out + row * buffer + head * size + column);
        __syncthreads(); /* before q and k are those of the next row */
    }
    if (rows > most_kept && at.there)
        write_column(h, m, to);
}
