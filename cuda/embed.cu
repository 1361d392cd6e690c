/* embed: rows of a matrix, dequantised, times scale; specrt/reference/embed.py says what it
 * computes.
 *
 * WEIGHT_TYPE is the weight's type; weights are as specrt/kernels/weights.py lays them out. tokens
 * are at least gridDim.x int32, out is [T, width] floats; a row is NaN if its id is no row. Grid:
 * rows in x, parts of 4 * THREADS columns in y. embed_x4 wants width % 4 = 0 and out at a multiple
 * of 16. MXFP4 weights below 2^-126 are zeros where subnormal numbers are.
 */
#include "quant_blocks.cuh"

#define THREADS 256

/* Columns 4 j .. 4 j + 3 of the group-th 32 of a row's block. */
template <class Type>
__device__ __forceinline__ float4 four_of(const char *b, int row, int group, int j)
{
    if constexpr (Type::is_float)
        return Type::four(b, row, j);
    else {
        const int sub = (32 * group + 4 * j) / Type::sub;
        return weights_of<Type>(Type::word(b, row, group, j), Type::scale(b, row, sub),
                                Type::minimum(b, row, sub));
    }
}

template <class Type, bool aligned>
__device__ __forceinline__ void embed(const char *weights, const int *tokens, float *out,
                                      int num_rows, int width, float scale)
{
    const int column = 4 * static_cast<int>(blockIdx.y * THREADS + threadIdx.x);
    if (column >= width)
        return;
    const int token = load(tokens + blockIdx.x);
    const float nan = __int_as_float(0x7fc00000);
    float4 v = make_float4(nan, nan, nan, nan);
    if (token >= 0 && token < num_rows) {
        const long long num_blocks = (width + Type::block - 1) / Type::block;
        const char *b = weights + (token / TILE_ROWS * num_blocks + column / Type::block) *
                                      (TILE_ROWS * Type::bytes);
        v = four_of<Type>(b, token % TILE_ROWS, column % Type::block / 32, column % 32 / 4);
        v = make_float4(__fmul_rn(v.x, scale), __fmul_rn(v.y, scale), __fmul_rn(v.z, scale),
                        __fmul_rn(v.w, scale));
    }
    const long long start = static_cast<long long>(blockIdx.x) * width;
    store4<aligned>(out + start + column, v, width - column);
}

extern "C" __global__ void __launch_bounds__(THREADS)
embed_x4(const char *weights, const int *tokens, float *out, int num_rows, int width, float scale)
{
    embed<WEIGHT_TYPE, true>(weights, tokens, out, num_rows, width, scale);
}

extern "C" __global__ void __launch_bounds__(THREADS)
embed_x1(const char *weights, const int *tokens, float *out, int num_rows, int width, float scale)
{
    embed<WEIGHT_TYPE, false>(weights, tokens, out, num_rows, width, scale);
}
