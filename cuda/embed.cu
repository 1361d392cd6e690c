/* embed: rows of a matrix, dequantised, times scale; specrt/reference/embed.py says what it
 * computes.
 *
 * WEIGHT_TYPE is the weight's type; weights are as specrt/kernels/weights.py lays them out. tokens
 * are at least gridDim.x int32, out is [T, width] floats; a row is NaN if its id is no row. Grid:
 * rows in x, parts of 4 * THREADS columns in y. embed_x4 wants width % 4 = 0 and out at a multiple
 * of 16. MXFP4 weights below 2^-126 are zeros where subnormal numbers are.
 */
#include "embed.cuh"

#define THREADS 256

template <class Type, bool aligned>
__device__ __forceinline__ void embed(const char *weights, const int *tokens, float *out,
                                      int num_rows, int width, float scale)
{
    const int column = 4 * static_cast<int>(blockIdx.y * THREADS + threadIdx.x);
    if (column >= width)
        return;
    const Token<Type> token = {weights, load(tokens + blockIdx.x), num_rows, width, scale};
    const long long start = static_cast<long long>(blockIdx.x) * width;
    store4<aligned>(out + start + column, token.four(column), width - column);
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
