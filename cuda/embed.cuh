/* A row of a matrix, dequantised, times scale: what embed and mtp_project read of a token. */
#include "quant_blocks.cuh"

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

/* A token of weights [num_rows, width], which are as specrt/kernels/weights.py lays them out. */
template <class Type> struct Token {
    const char *weights;
    int id, num_rows, width;
    float scale;

    /* Columns column .. column + 3, of which the first is there: NaN if the id is no row; zeros
     * behind the last column of a float type. */
    __device__ __forceinline__ float4 four(int column) const
    {
        const float nan = __int_as_float(0x7fc00000);
        if (id < 0 || id >= num_rows)
            return make_float4(nan, nan, nan, nan);
        const long long num_blocks = (width + Type::block - 1) / Type::block;
        const char *b = weights + (id / TILE_ROWS * num_blocks + column / Type::block) *
                                      (TILE_ROWS * Type::bytes);
        const float4 v =
            four_of<Type>(b, id % TILE_ROWS, column % Type::block / 32, column % 32 / 4);
        return make_float4(__fmul_rn(v.x, scale), __fmul_rn(v.y, scale), __fmul_rn(v.z, scale),
                           __fmul_rn(v.w, scale));
    }
};
