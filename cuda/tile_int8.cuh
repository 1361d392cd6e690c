/* The forms of linear over rows of codes: see linear.cu. */
#include "tile.cuh"

/* acc += one sub-block: i is its exact integer, row_scale and row_sum those of the input row. */
template <class Type>
__device__ __forceinline__ void add_block(float &acc, float i, float scale, float minimum, float d,
                                          float s)
{
    acc = __fmaf_rn(__fmul_rn(scale, d), i, acc);
    if (Type::has_minimum)
        acc = __fmaf_rn(minimum, s, acc);
}

/* Sixteen weight rows times 8 * tiles rows on the matrix units: lane (g, t) has weight rows g and
 * g + 8, and of each eight rows 2 t and 2 t + 1. */
template <class Type, int tiles> struct MmaForm {
    static constexpr int rows = 8 * tiles;
    float acc[tiles][4];

    __device__ __forceinline__ void clear()
    {
#pragma unroll
        for (int i = 0; i < 4 * tiles; i++)
            acc[i / 4][i % 4] = 0.0f;
    }

    /* The codes of both groups of 32 columns, for eight rows each. */
    template <int chunk_rows>
    __device__ __forceinline__ void load_codes(int (&b)[2][tiles][2],
                                               const Chunk<chunk_rows> &chunk, int first_row,
                                               int lane) const
    {
#pragma unroll
        for (int tile = 0; tile < tiles; tile++) {
            int both[4];
            load_matrices(both, chunk.q(first_row + 8 * tile + lane % 8) + lane / 8 * 16);
#pragma unroll
            for (int i = 0; i < 4; i++)
                b[i / 2][tile][i % 2] = both[i];
        }
    }

    /* One group of 32 columns of a chunk; first_row is the first of the rows. */
    template <int chunk_rows>
    __device__ __forceinline__ void add_group(const char *unit, int chunk_index, int group,
                                              const int (&b)[tiles][2],
                                              const Chunk<chunk_rows> &chunk, int first_row,
                                              const Scales<Type> &scales, int lane)
    {
        const int g = lane / 4, t = lane % 4;
        int a[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            a[i] = chunk_word<Type>(unit, chunk_index, group, g + i % 2 * 8, t + i / 2 * 4);
        constexpr int parts = 32 / Type::sub;
#pragma unroll
        for (int part = 0; part < parts; part++) {
            const int sub = group * parts + part;
            float scale[2], minimum[2] = {};
#pragma unroll
            for (int i = 0; i < 2; i++) {
                scale[i] = scales.scale(sub, g + 8 * i);
                if (Type::has_minimum)
                    minimum[i] = scales.minimum(sub, g + 8 * i);
            }
#pragma unroll
            for (int tile = 0; tile < tiles; tile++) {
                const int row = first_row + 8 * tile + 2 * t;
                float d[2], s[2] = {};
                int c[4];
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    d[i] = load(chunk.d(group, row + i));
                    int sum = MAGIC_BITS;
                    if (Type::has_minimum)
                        s[i] = __int_as_float(load(chunk.end(group, part, row + i)));
                    else if (Type::offset)
                        sum = load(chunk.end(group, part, row + i));
                    c[i] = c[i + 2] = sum;
                }
                if (parts == 1)
                    mma_s8(c, a, b[tile]);
                else
                    mma_s8(c, {a[2 * part], a[2 * part + 1]}, b[tile][part]);
#pragma unroll
                for (int i = 0; i < 4; i++)
                    add_block<Type>(acc[tile][i], float_of(c[i]), scale[i / 2], minimum[i / 2],
                                    d[i % 2], s[i % 2]);
            }
        }
    }

    template <int chunk_rows>
    __device__ __forceinline__ void add_chunk(const char *unit, int chunk_index, int groups,
                                              const Chunk<chunk_rows> &chunk, int first_row,
                                              const Scales<Type> &scales, int lane)
    {
        int b[2][tiles][2];
        load_codes(b, chunk, first_row, lane);
#pragma unroll
        for (int group = 0; group < 2; group++)
            if (group < groups)
                add_group(unit, chunk_index, group, b[group], chunk, first_row, scales, lane);
    }

    /* Into [row][pitch]. */
    __device__ __forceinline__ void put(float *to, int pitch, int lane) const
    {
        const int g = lane / 4, t = lane % 4;
#pragma unroll
        for (int tile = 0; tile < tiles; tile++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                store(to + (8 * tile + 2 * t + i % 2) * pitch + g + i / 2 * 8, acc[tile][i]);
    }
};

/* Sixteen weight rows times two rows: lane (half, row) multiplies the half-th group of 32 columns
 * of a chunk by both, then the halves exchange so that each adds up one row. */
template <class Type> struct DotForm {
    static constexpr int rows = 2;
    float acc;

    __device__ __forceinline__ void clear() { acc = 0.0f; }

    __device__ __forceinline__ void add_chunk(const char *unit, int chunk_index, int groups,
                                              const Chunk<2> &chunk, int,
                                              const Scales<Type> &scales, int lane)
    {
        constexpr int parts = 32 / Type::sub;
        const int weight_row = lane % 16, half = lane / 16;
        int dots[2][2] = {};
#pragma unroll
        for (int j = 0; j < 8; j += 4) {
            int w[4];
#pragma unroll
            for (int i = 0; i < 4; i++)
                w[i] = chunk_word<Type>(unit, chunk_index, half, weight_row, j + i);
#pragma unroll
            for (int row = 0; row < 2; row++) {
                const int4 q =
                    load(reinterpret_cast<const int4 *>(chunk.q(row) + 32 * half + 4 * j));
                int &dot = dots[row][parts == 2 ? j / 4 : 0];
                dot = __dp4a(w[0], q.x, dot);
                dot = __dp4a(w[1], q.y, dot);
                dot = __dp4a(w[2], q.z, dot);
                dot = __dp4a(w[3], q.w, dot);
            }
        }
        int mine[2][2]; /* of the row that this half adds up, by group */
#pragma unroll
        for (int part = 0; part < parts; part++) {
            const int own = half ? dots[1][part] : dots[0][part];
            const int other =
                __shfl_xor_sync(ALL_LANES, half ? dots[0][part] : dots[1][part], 16);
            mine[0][part] = half ? other : own;
            mine[1][part] = half ? own : other;
        }
#pragma unroll(Type::dot_unroll)
        for (int group = 0; group < 2; group++) {
            if (group >= groups)
                break;
            const float d = load(chunk.d(group, half));
#pragma unroll
            for (int part = 0; part < parts; part++) {
                const int sub = group * parts + part;
                const int end = Type::has_minimum || Type::offset
                                    ? load(chunk.end(group, part, half))
                                    : MAGIC_BITS;
                const int start = Type::has_minimum ? MAGIC_BITS : end;
                add_block<Type>(acc, float_of(start + (group ? mine[1][part] : mine[0][part])),
                                scales.scale(sub, weight_row),
                                Type::has_minimum ? scales.minimum(sub, weight_row) : 0.0f, d,
                                Type::has_minimum ? __int_as_float(end) : 0.0f);
            }
        }
    }

    __device__ __forceinline__ void put(float *to, int pitch, int lane) const
    {
        store(to + lane / 16 * pitch + lane % 16, acc);
    }
};

/* A tile of sixteen weight rows of a pair, a segment of its columns to each warp, times rows taken
 * of the codes. */
template <class Type, class Form, class Rows>
__device__ __forceinline__ void split(const Pair &pair, int tile, const Codes &codes,
                                      const Rows &taken, const End &end, int width)
{
    constexpr int rows = Form::rows, chunks = Type::unit_blocks * Type::block / CHUNK;
    constexpr int rest = Chunk<rows>::bytes + SCALE_BYTES;
    constexpr int fitting = (WARP_BYTES - rest) / (TILE_ROWS * Type::bytes * Type::unit_blocks);
    constexpr int num_stages = fitting < MAX_STAGES ? fitting : MAX_STAGES;
    using Weights = Ring<Type, num_stages, 32>;
    constexpr int ring_bytes = num_stages * Weights::stage_bytes;

    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    const int num_blocks = width / Type::block;
    const Segment segment = segment_of(warp, num_blocks);

    char *own = shared_block<char>() + warp * (ring_bytes + rest);
    const Chunk<rows> chunk{own + ring_bytes};
    const Scales<Type> scales{reinterpret_cast<float *>(own + ring_bytes + Chunk<rows>::bytes)};
    Weights weights{own, pair.weights +
                             (static_cast<long long>(tile) * num_blocks + segment.first) *
                                 Weights::block_bytes};
    ChunkLoader<rows, 32> loader{};
    loader.start(codes, taken, width, segment.first * Type::block, lane);
    int left = segment.count * Type::block; /* columns */
    Form form;
    form.clear();
#pragma unroll
    for (int unit = 0; unit < num_stages; unit++)
        weights.start(unit, unit_count<Type>(unit * Type::unit_blocks, segment.count), lane);
    loader.load_next(0, left, lane);
    for (int unit = 0; left > 0; unit++) {
        const int groups = Type::block == 32 && left < CHUNK ? 1 : 2;
        const char *there = weights.unit(unit);
        cp_async_wait<num_stages - 1>();
        __syncwarp();
#pragma unroll 1
        for (int c = 0; c < chunks; c++) {
            loader.template put<Type>(chunk, lane);
            scales.put(there, c, groups, lane);
            left -= CHUNK;
            loader.load_next(CHUNK, left, lane);
            __syncwarp();
            form.add_chunk(there, c, groups, chunk, 0, scales, lane);
            __syncwarp();
        }
        constexpr int ahead = (num_stages - 1) * Type::unit_blocks; /* blocks on their way */
        weights.start(unit, unit_count<Type>(ahead, left / Type::block), lane);
    }
    __syncthreads();
    float *partial = shared_block<float>();
    form.put(partial + warp * rows * TILE_ROWS, TILE_ROWS, lane);
    __syncthreads();
    end_tile<rows>(partial, codes.q[1], taken.first, pair, end, tile);
}

/* A unit of a tile: blocks first .. end are what its segment still has. */
struct Place { int first, end; };

template <class Type> __device__ __forceinline__ Place next_place(Place p, int step, int num_blocks)
{
    const int first = p.first + Type::unit_blocks;
    if (first < p.end)
        return {first, p.end};
    return {p.end, p.end + step < num_blocks ? p.end + step : num_blocks};
}

/* 64 weight rows times 32 rows: a warp has a tile of sixteen and half of the rows. */
template <class Type>
__device__ __forceinline__ void tiled(const Pair (&pairs)[8], const Codes &codes, const End &end,
                                      int width)
{
    constexpr int rows = 32, tiles = 4, chunks = Type::unit_blocks * Type::block / CHUNK;
    using Weights = Ring<Type, 2, 64>;
    constexpr int ring_bytes = 2 * Weights::stage_bytes;

    int group = static_cast<int>(blockIdx.x);
    const Pair pair = pick(pairs, tiles * TILE_ROWS, group);
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    const int own = warp % tiles, half = warp / tiles, tile = tiles * group + own;
    const int num_blocks = width / Type::block;
    const int step = (num_blocks + NUM_SEGMENTS - 1) / NUM_SEGMENTS;
    const int out_rows = codes.q[1] ? rows / 2 : rows;
    const int first_row = static_cast<int>(blockIdx.y) * out_rows;

    char *shared = shared_block<char>();
    const Chunk<rows> chunk{shared + tiles * ring_bytes};
    const Scales<Type> scales{reinterpret_cast<float *>(shared + tiles * ring_bytes +
                                                        Chunk<rows>::bytes +
                                                        own * SCALE_BYTES)};
    Weights weights{shared + own * ring_bytes,
                    pair.weights +
                        static_cast<long long>(tile) * num_blocks * Weights::block_bytes};
    const bool there = tile * TILE_ROWS < pair.num_rows;
    ChunkLoader<rows, THREADS> loader{};
    loader.start(codes, NextRows{first_row, end.num_rows}, width, 0,
                 static_cast<int>(threadIdx.x));
    MmaForm<Type, rows / 16> form, total;
    form.clear();
    total.clear();
    const auto start = [&](int unit, Place p) {
        const int count = there ? unit_count<Type>(p.first, p.end) : 0;
        weights.start(unit, count, half * 32 + lane);
    };
    int column = 0;
    const auto load_chunk = [&](Place p, int c) {
        const int from = p.first * Type::block + c * CHUNK;
        loader.load_next(from - column, p.end * Type::block - from, static_cast<int>(threadIdx.x));
        column = from;
    };
    Place place{0, step};
    start(0, place);
    start(1, next_place<Type>(place, step, num_blocks));
    load_chunk(place, 0);
    for (int unit = 0; place.first < num_blocks; unit++) {
        const int groups = Type::block == 32 ? unit_count<Type>(place.first, place.end) : 2;
        const Place next = next_place<Type>(place, step, num_blocks);
        cp_async_wait<1>();
        __syncthreads();
#pragma unroll 1
        for (int c = 0; c < chunks; c++) {
            loader.template put<Type>(chunk, static_cast<int>(threadIdx.x));
            if (half == 0 && there)
                scales.put(weights.unit(unit), c, groups, lane);
            __syncthreads();
            form.add_chunk(weights.unit(unit), c, groups, chunk, rows / 2 * half, scales, lane);
            load_chunk(c + 1 < chunks ? place : next, (c + 1) % chunks);
            __syncthreads();
        }
        start(unit, next_place<Type>(next, step, num_blocks));
        if (next.first == place.end) {
#pragma unroll
            for (int i = 0; i < rows / 4; i++)
                total.acc[i / 4][i % 4] =
                    __fadd_rn(total.acc[i / 4][i % 4], form.acc[i / 4][i % 4]);
            form.clear();
        }
        place = next;
    }
    float *sums = shared_block<float>();
    constexpr int pitch = tiles * TILE_ROWS;
    __syncthreads();
    total.put(sums + rows / 2 * half * pitch + own * TILE_ROWS, pitch, lane);
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < out_rows * pitch; i += THREADS) {
        float value = load(sums + i);
        if (codes.q[1])
            value = __fadd_rn(value, load(sums + out_rows * pitch + i));
        finish(value, pair, end, first_row + i / pitch, tiles * group + i / TILE_ROWS % tiles,
               i % TILE_ROWS);
    }
}
