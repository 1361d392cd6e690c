/* What the forms of linear share: pairs, segments, rings of weights, rows of codes, the end.
 *
 * A block takes one tile of sixteen weight rows of one pair. Warp s has segment s of its columns.
 * The blocks of a tile lie one behind the other, so that a segment is one run of bytes; it is copied
 * a unit (a block, or two of 32 columns) at a time.
 */
#include "keys.cuh"
#include "quant_blocks.cuh"

#define NUM_SEGMENTS 8
#define THREADS (32 * NUM_SEGMENTS)
#define WARP_BYTES 6144 /* of shared memory that a warp may use: all of them have 48 KB */
#define CHUNK 64        /* columns of codes that are taken at a time */
#define MAX_STAGES 4
#define ROW_BYTES 80    /* from row to row of a chunk: 8 rows of 16 bytes meet in no bank */
#define ALL_LANES 0xffffffffu

/* |i| < 2^22 as the low bits of a float: no conversion. */
#define MAGIC_BITS 0x4b400000
__device__ __forceinline__ float float_of(int bits)
{
    return __fsub_rn(__int_as_float(bits), 12582912.0f);
}

struct Pair {
    const char *weights; /* tiles of blocks of 16 rows */
    const float *bias;   /* [N], or null */
    float *out;          /* [T, N], or null */
    int num_rows;        /* N; 0 for no pair */
};

#define PAIR(i) const char *weights##i, const float *bias##i, float *out##i, int num_rows##i
#define EIGHT_PAIRS PAIR(0), PAIR(1), PAIR(2), PAIR(3), PAIR(4), PAIR(5), PAIR(6), PAIR(7)
#define GIVEN(i) {weights##i, bias##i, out##i, num_rows##i}
#define THE_PAIRS {GIVEN(0), GIVEN(1), GIVEN(2), GIVEN(3), GIVEN(4), GIVEN(5), GIVEN(6), GIVEN(7)}

/* The pair that the tile-th group of num_rows rows belongs to; tile becomes its place there. */
template <int count>
__device__ __forceinline__ Pair pick(const Pair (&pairs)[count], int num_rows, int &tile)
{
    Pair pair = pairs[0];
    bool found = false;
#pragma unroll
    for (int i = 0; i < count; i++) {
        const int tiles = (pairs[i].num_rows + num_rows - 1) / num_rows;
        if (!found)
            pair = pairs[i];
        found = found || tile < tiles;
        if (!found)
            tile -= tiles;
    }
    return pair;
}

/* Blocks first .. first + count of a row's num_blocks. */
struct Segment { int first, count; };

__device__ __forceinline__ Segment segment_of(int index, int num_blocks)
{
    const int step = (num_blocks + NUM_SEGMENTS - 1) / NUM_SEGMENTS;
    const int first = index * step, left = num_blocks - first;
    return {first, left < 0 ? 0 : left < step ? left : step};
}

/* Blocks of a tile on their way through shared memory, a unit at a time, by `threads` threads. */
template <class Type, int num_stages, int threads, int unit_blocks = Type::unit_blocks>
struct Ring {
    static constexpr int block_bytes = TILE_ROWS * Type::bytes;
    static constexpr int stage_bytes = unit_blocks * block_bytes;
    char *stages;
    const char *from; /* the block that follows */

    /* Start copying the next count blocks, at most a unit, and close their group. */
    __device__ __forceinline__ void start(int unit, int count, int thread)
    {
        char *to = stages + unit % num_stages * stage_bytes + 16 * thread;
        const char *p = from + 16 * thread;
        const int left = count * block_bytes - 16 * thread;
#pragma unroll
        for (int at = 0; at < stage_bytes; at += 16 * threads)
            if (at < left)
                cp_async_16(to + at, p + at, true);
        cp_async_commit();
        from += count * block_bytes;
    }
    __device__ __forceinline__ const char *unit(int unit) const
    {
        return stages + unit % num_stages * stage_bytes;
    }
};

/* The rows first .. end - 1 and no others; a form may ask for ones behind them, whose results nobody
 * keeps. */
struct NextRows {
    int first, end;
    __device__ __forceinline__ bool there(int local) const { return first + local < end; }
    /* Where the local-th row is; the last one stands for those behind it. */
    __device__ __forceinline__ int at(int local) const
    {
        return there(local) ? first + local : end - 1;
    }
};

/* Rows that quantize prepared: first, and second for int8x2, else null. */
struct Codes {
    const char *q[2];
    const float *d[2];
    const int *sums[2];
};

#define CODES                                                                                      \
    const char *q, const float *d, const int *sums, const char *second_q, const float *second_d,   \
        const int *second_sums
#define THE_CODES {{q, second_q}, {d, second_d}, {sums, second_sums}}

/* A chunk of codes in shared memory. */
template <int rows> struct Chunk {
    static constexpr int bytes = rows * (ROW_BYTES + 2 * 4 + 2 * 8);
    char *base;
    __device__ __forceinline__ char *q(int row) const { return base + row * ROW_BYTES; }
    __device__ __forceinline__ float *d(int group, int row) const
    {
        return reinterpret_cast<float *>(base + rows * ROW_BYTES) + group * rows + row;
    }
    /* What the sum of the codes of each half of a group becomes: see ChunkLoader::put. */
    __device__ __forceinline__ int *end(int group, int part, int row) const
    {
        return reinterpret_cast<int *>(base + rows * (ROW_BYTES + 8)) + (2 * group + part) * rows +
               row;
    }
};

template <int bytes> struct Piece;
template <> struct Piece<4> { using type = unsigned; };
template <> struct Piece<8> { using type = uint2; };
template <> struct Piece<16> { using type = uint4; };

/* A chunk on its way through the registers of `threads` threads, each of which has the same number
 * of pieces. For int8x2 the second half of a block's rows are second ones. Columns behind a segment
 * hold anything: nobody keeps what becomes of them. */
template <int rows, int threads> struct ChunkLoader {
    static constexpr int each = rows * CHUNK / threads, bytes = each < 16 ? each : 16;
    static constexpr int pieces = each / bytes, per_row = CHUNK / bytes;
    using Word = typename Piece<bytes>::type;
    const char *q_at[pieces];
    const float *d_at[pieces];
    const int2 *sums_at[pieces];
    Word q[pieces];
    float d[pieces];
    int2 sums[pieces];

    /* Stand at a column. */
    template <class Rows>
    __device__ __forceinline__ void start(const Codes &codes, const Rows &taken, int width,
                                          int column, int thread)
    {
        const int half = codes.q[1] ? rows / 2 : rows;
#pragma unroll
        for (int i = 0; i < pieces; i++) {
            const int piece = thread + i * threads, local = piece / per_row;
            const int part = piece % per_row * bytes;
            const bool second = local >= half;
            const int row = taken.at(local - (second ? half : 0));
            const long long place = static_cast<long long>(row) * width + column;
            q_at[i] = (second ? codes.q[1] : codes.q[0]) + place + part;
            d_at[i] = (second ? codes.d[1] : codes.d[0]) + place / 32 + part / 32;
            sums_at[i] = reinterpret_cast<const int2 *>(second ? codes.sums[1] : codes.sums[0]) +
                         place / 32 + part / 32;
        }
    }
    /* Go on by some columns, and load the chunk there; so many columns of the segment are left. */
    __device__ __forceinline__ void load_next(int columns, int left, int thread)
    {
#pragma unroll
        for (int i = 0; i < pieces; i++) {
            q_at[i] += columns;
            d_at[i] += columns / 32;
            sums_at[i] += columns / 32;
            if ((thread + i * threads) % per_row * bytes >= left)
                continue;
            q[i] = load(reinterpret_cast<const Word *>(q_at[i]));
            d[i] = load(d_at[i]);
            sums[i] = load(sums_at[i]);
        }
    }
    /* With a minimum the ends are what it is times of, with an offset where the integer sums start;
     * where a group is one sub-block, the first end is of all of it. */
    template <class Type>
    __device__ __forceinline__ void put(const Chunk<rows> &chunk, int thread) const
    {
#pragma unroll
        for (int i = 0; i < pieces; i++) {
            const int piece = thread + i * threads, row = piece / per_row;
            const int part = piece % per_row * bytes;
            store(reinterpret_cast<Word *>(chunk.q(row) + part), q[i]);
            if (part % 32)
                continue;
            store(chunk.d(part / 32, row), d[i]);
            const int first = Type::sub == 32 ? sums[i].x + sums[i].y : sums[i].x;
            store(chunk.end(part / 32, 0, row), end_of<Type>(first, d[i]));
            if (Type::sub == 16)
                store(chunk.end(part / 32, 1, row), end_of<Type>(sums[i].y, d[i]));
        }
    }
    template <class Type> static __device__ __forceinline__ int end_of(int sum, float d)
    {
        if (Type::has_minimum)
            return __float_as_int(__fmul_rn(d, float_of(MAGIC_BITS + sum)));
        return MAGIC_BITS - Type::offset * sum;
    }
};

/* Scales and minima of a chunk's sub-blocks, at most four, for the rows of a tile: what rows g and
 * g + 8 have lies side by side. */
#define SCALE_BYTES (2 * 4 * TILE_ROWS * 4)
template <class Type> struct Scales {
    static constexpr int subs = CHUNK / Type::sub, pitch = Type::has_minimum ? 4 : 2;
    float *base;
    __device__ __forceinline__ float *at(int sub, int row) const
    {
        return base + (sub * (TILE_ROWS / 2) + (row & 7)) * pitch + (row >> 3);
    }
    __device__ __forceinline__ float scale(int sub, int row) const { return load(at(sub, row)); }
    __device__ __forceinline__ float minimum(int sub, int row) const
    {
        return load(at(sub, row) + 2);
    }
    /* Lane (half, row) decodes half of the sub-blocks of a row, of blocks that are there. */
    __device__ __forceinline__ void put(const char *unit, int chunk, int groups, int lane) const
    {
        const int row = lane % 16, half = lane / 16;
        if (half >= groups)
            return;
        constexpr int per_group = 32 / Type::sub;
#pragma unroll
        for (int i = 0; i < per_group; i++) {
            const int sub = half * per_group + i;
            const char *b = unit;
            int place = chunk * subs + sub;
            if (Type::block == 32) {
                b += half * TILE_ROWS * Type::bytes;
                place = i;
            }
            const float scale = product_scale<Type>(b, row, place);
            const float minimum = Type::minimum(b, row, place);
            store(at(sub, row), scale);
            if (Type::has_minimum)
                store(at(sub, row) + 2, minimum);
        }
    }
};

/* Word j of a chunk's group (0 or 1) of 32 columns. */
template <class Type>
__device__ __forceinline__ int chunk_word(const char *unit, int chunk, int group, int row, int j)
{
    if (Type::block == 32)
        return Type::word(unit + group * TILE_ROWS * Type::bytes, row, 0, j);
    return Type::word(unit, row, 2 * chunk + group, j);
}

/* What is added to the products, and where they go. */
struct End {
    const float *add;         /* [T, N], or null */
    unsigned long long *keys; /* [T, tiles] of head, or null */
    float scale, softcap;     /* of head; 1 and 0 change nothing */
    int num_rows;             /* T */
    int stride;               /* from row to row of add and of the pair's out; 0: N, they are adjacent */
};

/* The end of row t and weight row tile * 16 + n, by sixteen lanes with n = lane % 16. All lanes of
 * the warp take part. */
__device__ __forceinline__ void finish(float value, const Pair &pair, const End &end, int t,
                                       int tile, int n)
{
    const int row = tile * TILE_ROWS + n;
    const bool there = t < end.num_rows && row < pair.num_rows;
    const int stride = end.stride ? end.stride : pair.num_rows;
    const long long place = static_cast<long long>(t) * stride + row;
    if (there && pair.bias)
        value = __fadd_rn(value, load(pair.bias + row));
    if (there && end.add)
        value = __fadd_rn(value, load(end.add + place));
    if (end.scale != 1.0f)
        value = __fmul_rn(end.scale, value);
    if (end.softcap > 0.0f)
        value = __fmul_rn(end.softcap, tanh_of(__fdiv_rn(value, end.softcap)));
    if (there && pair.out)
        store(pair.out + place, value);
    if (!end.keys)
        return;
    unsigned long long key = there ? key_of(value, row) : 0;
    for (int flip = 8; flip > 0; flip /= 2) {
        const unsigned long long other = __shfl_xor_sync(ALL_LANES, key, flip);
        key = key > other ? key : other;
    }
    const int tiles = (pair.num_rows + TILE_ROWS - 1) / TILE_ROWS;
    if (n == 0 && there)
        store(end.keys + static_cast<long long>(t) * tiles + tile, key);
}

/* Blocks of a unit that are left. */
template <class Type> __device__ __forceinline__ int unit_count(int first, int end)
{
    const int left = end - first;
    return left < Type::unit_blocks ? left : Type::unit_blocks;
}

/* Add the segments of all warps, [segment][row][16], and end `rows` rows from first_row on; the
 * second half of them, if there is one, is added to the first. */
template <int rows>
__device__ __forceinline__ void end_tile(const float *partial, bool second, int first_row,
                                         const Pair &pair, const End &end, int tile)
{
    const int num_rows = second ? rows / 2 : rows;
    for (int i = static_cast<int>(threadIdx.x); i < (num_rows * TILE_ROWS + 31) / 32 * 32;
         i += THREADS) {
        float sums[2] = {};
        for (int part = 0; part < (second ? 2 : 1); part++)
            for (int segment = 0; segment < NUM_SEGMENTS; segment++)
                sums[part] = __fadd_rn(sums[part], load(partial + segment * rows * TILE_ROWS +
                                                        part * num_rows * TILE_ROWS + i));
        const float value = second ? __fadd_rn(sums[0], sums[1]) : sums[0];
        const int row = i / TILE_ROWS, t = row < num_rows ? first_row + row : end.num_rows;
        finish(value, pair, end, t, tile, i % TILE_ROWS);
    }
}
