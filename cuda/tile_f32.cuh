/* The form of linear over float rows: see linear.cu. */
#include "tile.cuh"

#define F32_COLUMNS 32 /* that are taken at a time */
#define F32_PITCH 36   /* floats from row to row of them: two rows meet in no bank */

/* Four weights of a row: columns 4 j .. 4 j + 3 of the group-th 32 of a block. */
template <class Type>
__device__ __forceinline__ float4 four_weights(const char *b, int group, int row, int j,
                                               const float (&scale)[2], const float (&minimum)[2])
{
    if constexpr (Type::is_float)
        return Type::four(b, row, j);
    else {
        const bool second = Type::sub == 16 && j >= 4;
        return weights_of<Type>(Type::word(b, row, group, j), second ? scale[1] : scale[0],
                                second ? minimum[1] : minimum[0]);
    }
}

/* 32 columns of rows on their way through a warp's registers; what is not there is zeros. */
template <int rows> struct FloatLoader {
    static constexpr int pieces = rows / 4;
    float4 x[pieces];

    template <class Rows>
    __device__ __forceinline__ void load_from(const float *from, bool wide, const Rows &taken,
                                              int width, int column, int end, int lane)
    {
#pragma unroll
        for (int i = 0; i < pieces; i++) {
            const int row = (lane + 32 * i) / 8, at = column + lane % 8 * 4;
            const float *p = from + static_cast<long long>(taken.at(row)) * width + at;
            x[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            if (taken.there(row) && at < end)
                x[i] = wide ? load4<true>(p, 4) : load4<false>(p, end - at);
        }
    }
    __device__ __forceinline__ void put(float *to, int lane) const
    {
#pragma unroll
        for (int i = 0; i < pieces; i++)
            store(reinterpret_cast<float4 *>(to + (lane + 32 * i) / 8 * F32_PITCH + lane % 8 * 4),
                  x[i]);
    }
};

/* A tile of sixteen weight rows of a pair, a segment of its columns to each warp, times rows taken
 * of x; lane (half, row) adds every second of the rows, column by column. */
template <class Type, int rows, class Rows>
__device__ __forceinline__ void split_f32(const Pair &pair, int tile, const float *x, bool wide,
                                          const Rows &taken, const End &end, int width)
{
    constexpr int groups = Type::block / F32_COLUMNS, rest = 4 * F32_PITCH * rows;
    constexpr int fitting = (WARP_BYTES - rest) / (TILE_ROWS * Type::bytes);
    constexpr int num_stages = fitting < MAX_STAGES ? fitting : MAX_STAGES;
    using Weights = Ring<Type, num_stages, 32, 1>;
    constexpr int ring_bytes = num_stages * Weights::stage_bytes;

    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    const int weight_row = lane % 16, half = lane / 16;
    const int num_blocks = (width + Type::block - 1) / Type::block;
    const Segment segment = segment_of(warp, num_blocks);

    char *own = shared_block<char>() + warp * (ring_bytes + rest);
    float *chunk = reinterpret_cast<float *>(own + ring_bytes);
    Weights weights{own, pair.weights +
                             (static_cast<long long>(tile) * num_blocks + segment.first) *
                                 Weights::block_bytes};
    const int behind = (segment.first + segment.count) * Type::block;
    const int last_column = behind < width ? behind : width;
    int column = segment.first * Type::block;
    FloatLoader<rows> loader;
    float acc[rows / 2] = {};
#pragma unroll
    for (int unit = 0; unit < num_stages; unit++)
        weights.start(unit, unit < segment.count, lane);
    loader.load_from(x, wide, taken, width, column, last_column, lane);
    for (int unit = 0; unit < segment.count; unit++) {
        const char *b = weights.unit(unit);
        cp_async_wait<num_stages - 1>();
        __syncwarp();
        for (int group = 0; group < groups; group++) {
            loader.put(chunk, lane);
            column += F32_COLUMNS;
            loader.load_from(x, wide, taken, width, column, last_column, lane);
            float scale[2] = {}, minimum[2] = {};
            if constexpr (!Type::is_float)
#pragma unroll
                for (int i = 0; i < 32 / Type::sub; i++) {
                    scale[i] = product_scale<Type>(b, weight_row, group * (32 / Type::sub) + i);
                    minimum[i] = Type::minimum(b, weight_row, group * (32 / Type::sub) + i);
                }
            __syncwarp();
#pragma unroll(Type::is_float ? 2 : 1)
            for (int j = 0; j < F32_COLUMNS / 4; j++) {
                const float4 w = four_weights<Type>(b, group, weight_row, j, scale, minimum);
#pragma unroll
                for (int i = 0; i < rows / 2; i++) {
                    const float4 v = load(reinterpret_cast<const float4 *>(
                        chunk + (2 * i + half) * F32_PITCH + 4 * j));
                    acc[i] = __fmaf_rn(w.x, v.x, acc[i]);
                    acc[i] = __fmaf_rn(w.y, v.y, acc[i]);
                    acc[i] = __fmaf_rn(w.z, v.z, acc[i]);
                    acc[i] = __fmaf_rn(w.w, v.w, acc[i]);
                }
            }
            __syncwarp();
        }
        weights.start(unit, unit + num_stages < segment.count, lane);
    }
    __syncthreads();
    float *partial = shared_block<float>();
#pragma unroll
    for (int i = 0; i < rows / 2; i++)
        store(partial + (warp * rows + 2 * i + half) * TILE_ROWS + weight_row, acc[i]);
    __syncthreads();
    end_tile<rows>(partial, false, taken.first, pair, end, tile);
}
