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

    /* One group of 32 columns of a chunk; b are the codes of the rows, first_row theirs. */
    template <int chunk_rows>
    __device__ __forceinline__ void add_group(const char *unit, int chunk_index, int group,
                                              const Chunk<chunk_rows> &chunk, int first_row,
                                              const Scales<Type> &scales, const int (&b)[tiles][4],
                                              int lane)
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
                    int sum = 0;
                    if (Type::has_minimum || Type::offset) {
                        const int2 both = load(chunk.sums(group, row + i));
                        sum = parts == 1 ? both.x + both.y : part ? both.y : both.x;
                    }
                    if (Type::has_minimum)
                        s[i] = __fmul_rn(d[i], float_of(MAGIC_BITS + sum));
                    c[i] = c[i + 2] = MAGIC_BITS - Type::offset * sum;
                }
                if (parts == 1)
                    mma_s8(c, a, {b[tile][2 * group], b[tile][2 * group + 1]});
                else
                    mma_s8(c, {a[2 * part], a[2 * part + 1]}, b[tile][2 * group + part]);
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
        int b[tiles][4];
#pragma unroll
        for (int tile = 0; tile < tiles; tile++)
            load_matrices(b[tile], chunk.q(first_row + 8 * tile + lane % 8) + lane / 8 * 16);
#pragma unroll
        for (int group = 0; group < 2; group++)
            if (group < groups)
                add_group(unit, chunk_index, group, chunk, first_row, scales, b, lane);
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
        int own[2], other[2];
#pragma unroll
        for (int part = 0; part < parts; part++) {
            own[part] = half ? dots[1][part] : dots[0][part];
            other[part] = __shfl_xor_sync(ALL_LANES, half ? dots[0][part] : dots[1][part], 16);
        }
#pragma unroll
        for (int group = 0; group < 2; group++) {
            if (group >= groups)
                continue;
            const float d = load(chunk.d(group, half));
            const int2 both = load(chunk.sums(group, half));
#pragma unroll
            for (int part = 0; part < parts; part++) {
                const int sub = group * parts + part;
                const int sum = parts == 1 ? both.x + both.y : part ? both.y : both.x;
                const int dot = group == half ? own[part] : other[part];
                add_block<Type>(acc, float_of(MAGIC_BITS + dot - Type::offset * sum),
                                scales.scale(sub, weight_row),
                                Type::has_minimum ? scales.minimum(sub, weight_row) : 0.0f, d,
                                __fmul_rn(d, float_of(MAGIC_BITS + sum)));
            }
        }
    }

    __device__ __forceinline__ void put(float *to, int pitch, int lane) const
    {
        store(to + lane / 16 * pitch + lane % 16, acc);
    }
};

/* A tile of sixteen weight rows, a segment of its columns to each warp. */
template <class Type, class Form>
__device__ __forceinline__ void split(const Pair (&pairs)[8], const Codes &codes, const End &end,
                                      int width)
{
    constexpr int rows = Form::rows, chunks = Type::unit_blocks * Type::block / CHUNK;
    constexpr int rest = Chunk<rows>::bytes + SCALE_BYTES;
    constexpr int fitting = (WARP_BYTES - rest) / (TILE_ROWS * Type::bytes * Type::unit_blocks);
    constexpr int num_stages = fitting < MAX_STAGES ? fitting : MAX_STAGES;
    using Weights = Ring<Type, num_stages, 32>;
    constexpr int ring_bytes = num_stages * Weights::stage_bytes;

    int tile = static_cast<int>(blockIdx.x);
    const Pair pair = pick(pairs, TILE_ROWS, tile);
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    const int num_blocks = width / Type::block;
    const Segment segment = segment_of(warp, num_blocks);
    const int first_row = static_cast<int>(blockIdx.y) * (codes.q[1] ? rows / 2 : rows);

    char *own = shared_block<char>() + warp * (ring_bytes + rest);
    const Chunk<rows> chunk{own + ring_bytes};
    const Scales<Type> scales{reinterpret_cast<float *>(own + ring_bytes + Chunk<rows>::bytes)};
    const Weights weights{own, pair.weights + (static_cast<long long>(tile) * num_blocks +
                                               segment.first) * Weights::block_bytes};
    ChunkLoader<rows, 32> loader;
    const int last_column = (segment.first + segment.count) * Type::block;
    int column = segment.first * Type::block;
    Form form;
    form.clear();
#pragma unroll
    for (int unit = 0; unit < num_stages; unit++)
        weights.start(unit, unit * Type::unit_blocks,
                      unit_count<Type>(unit * Type::unit_blocks, segment.count), lane);
    loader.load_from(codes, first_row, end.num_rows, width, column, last_column, lane);
    for (int unit = 0; unit * Type::unit_blocks < segment.count; unit++) {
        const int first = unit * Type::unit_blocks, next = first + num_stages * Type::unit_blocks;
        const int groups = Type::block == 32 ? unit_count<Type>(first, segment.count) : 2;
        const char *there = weights.unit(unit);
        cp_async_wait<num_stages - 1>();
        __syncwarp();
        for (int c = 0; c < chunks; c++) {
            loader.put(chunk, lane);
            scales.put(there, c, groups, lane);
            column += CHUNK;
            loader.load_from(codes, first_row, end.num_rows, width, column, last_column, lane);
            __syncwarp();
            form.add_chunk(there, c, groups, chunk, 0, scales, lane);
            __syncwarp();
        }
        weights.start(unit, next, unit_count<Type>(next, segment.count), lane);
    }
    __syncthreads();
    float *partial = shared_block<float>();
    form.put(partial + warp * rows * TILE_ROWS, TILE_ROWS, lane);
    __syncthreads();
    end_tile<rows>(partial, codes.q[1], first_row, pair, end, tile);
}

/* 64 weight rows times 64 rows: a warp has a tile of sixteen and half of the rows. */
template <class Type>
__device__ __forceinline__ void tiled(const Pair (&pairs)[8], const Codes &codes, const End &end,
                                      int width)
{
    constexpr int rows = 64, tiles = 4, chunks = Type::unit_blocks * Type::block / CHUNK;
    using Weights = Ring<Type, 2, 64>;
    constexpr int ring_bytes = 2 * Weights::stage_bytes;

    int group = static_cast<int>(blockIdx.x);
    const Pair pair = pick(pairs, tiles * TILE_ROWS, group);
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    const int own = warp % tiles, half = warp / tiles, tile = tiles * group + own;
    const int num_blocks = width / Type::block;
    const int step = (num_blocks + NUM_SEGMENTS - 1) / NUM_SEGMENTS;
    const int units = (step + Type::unit_blocks - 1) / Type::unit_blocks; /* of a segment */
    const int num_units = (num_blocks + step - 1) / step * units;
    const int out_rows = codes.q[1] ? rows / 2 : rows;
    const int first_row = static_cast<int>(blockIdx.y) * out_rows;

    char *shared = shared_block<char>();
    const Chunk<rows> chunk{shared + tiles * ring_bytes};
    const Scales<Type> scales{reinterpret_cast<float *>(shared + tiles * ring_bytes +
                                                        Chunk<rows>::bytes +
                                                        own * SCALE_BYTES)};
    const Weights weights{shared + own * ring_bytes, pair.weights + static_cast<long long>(tile) *
                                                         num_blocks * Weights::block_bytes};
    const bool there = tile * TILE_ROWS < pair.num_rows;
    ChunkLoader<rows, THREADS> loader;
    MmaForm<Type, 4> form, total;
    form.clear();
    total.clear();
    const auto first_of = [&](int unit) {
        return unit / units * step + unit % units * Type::unit_blocks;
    };
    const auto end_of = [&](int unit) {
        const int last = (unit / units + 1) * step;
        return unit >= num_units ? 0 : last < num_blocks ? last : num_blocks;
    };
    const auto start = [&](int unit) {
        const int first = first_of(unit);
        const int count = there ? unit_count<Type>(first, end_of(unit)) : 0;
        weights.start(unit, first, count, half * 32 + lane);
    };
    const auto load_chunk = [&](int unit, int c) {
        loader.load_from(codes, first_row, end.num_rows, width,
                         first_of(unit) * Type::block + c * CHUNK, end_of(unit) * Type::block,
                         static_cast<int>(threadIdx.x));
    };
    start(0);
    start(1);
    load_chunk(0, 0);
    for (int unit = 0; unit < num_units; unit++) {
        const int left = unit_count<Type>(first_of(unit), end_of(unit));
        const int groups = Type::block == 32 ? left : 2;
        cp_async_wait<1>();
        __syncthreads();
        for (int c = 0; c < chunks; c++) {
            loader.put(chunk, static_cast<int>(threadIdx.x));
            if (half == 0 && there && left > 0)
                scales.put(weights.unit(unit), c, groups, lane);
            load_chunk(c + 1 < chunks ? unit : unit + 1, (c + 1) % chunks);
            __syncthreads();
            if (left > 0)
                form.add_chunk(weights.unit(unit), c, groups, chunk, 32 * half, scales, lane);
            __syncthreads();
        }
        start(unit + 2);
        if ((unit + 1) % units)
            continue;
#pragma unroll
        for (int i = 0; i < 16; i++)
            total.acc[i / 4][i % 4] = __fadd_rn(total.acc[i / 4][i % 4], form.acc[i / 4][i % 4]);
        form.clear();
    }
    float *sums = shared_block<float>();
    constexpr int pitch = tiles * TILE_ROWS;
    __syncthreads();
    total.put(sums + 32 * half * pitch + own * TILE_ROWS, pitch, lane);
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < out_rows * pitch; i += THREADS) {
        float value = load(sums + i);
        if (codes.q[1])
            value = __fadd_rn(value, load(sums + out_rows * pitch + i));
        finish(value, pair, end, first_row + i / pitch, tiles * group + i / TILE_ROWS % tiles,
               i % TILE_ROWS);
    }
}
