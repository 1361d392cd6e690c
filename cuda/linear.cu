/* linear: rows times a quantised or float matrix, plus bias, plus add; specrt/reference/linear.py
 * says what it computes, and in which order.
 *
 * WEIGHT_TYPE is the type of all weights of a launch. Up to eight pairs share the rows: q [T, K]
 * int8, d [T, K / 32] float, sums [T, K / 16] int32, or x [T, K] float; a second q for int8x2.
 * weights are as specrt/kernels/weights.py lays them out; bias, add and out may be null; with a
 * stride rows of add and out are so many floats apart. With keys
 * [T, tiles] each tile's best value and id of a row go there, see key_of. Grid: tiles of all pairs
 * in x (linear_tiled: groups of four), groups of rows in y. Forms, all of the same bits:
 *   linear_dot: up to 2 rows; a lane is a weight row, its half of the warp a group of 32 columns,
 *   linear_mma_8, linear_mma_16: products of 16 weight rows and 8 or twice 8 rows; both have a warp
 *   per segment of K, and add the segments through shared memory,
 *   linear_tiled: 64 weight rows and 32 rows a block, segment after segment,
 *   linear_f32_8, linear_f32_16: float rows, a lane per weight row and every second row.
 * For int8x2 half of a block's rows are second ones. Shared memory: as specrt/kernels/linear.py
 * says.
 */
#include "tile_f32.cuh"
#include "tile_int8.cuh"

using Type = WEIGHT_TYPE;

/* Of the small forms, as many blocks as shared memory lets be on a multiprocessor. */
#if __CUDA_ARCH__ == 800 || (__CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1200)
#define BLOCKS 3
#else
#define BLOCKS 2
#endif

#define ENDS                                                                                     \
    const float *add, unsigned long long *keys, float scale, float softcap, int num_rows,        \
        int stride, int width
#define THE_END {add, keys, scale, softcap, num_rows, stride}

/* The rows of a block whose form takes so many: of int8x2 half as many, twice. */
template <class Form>
__device__ __forceinline__ void linear_split(const Pair (&pairs)[8], const Codes &codes,
                                             const End &end, int width)
{
    int tile = static_cast<int>(blockIdx.x);
    const Pair pair = pick(pairs, TILE_ROWS, tile);
    const int first_row = static_cast<int>(blockIdx.y) * (codes.q[1] ? Form::rows / 2 : Form::rows);
    split<Type, Form>(pair, tile, codes, NextRows{first_row, end.num_rows}, end, width);
}

template <int rows>
__device__ __forceinline__ void linear_f32(const Pair (&pairs)[8], const float *x, int wide,
                                           const End &end, int width)
{
    int tile = static_cast<int>(blockIdx.x);
    const Pair pair = pick(pairs, TILE_ROWS, tile);
    const NextRows taken{static_cast<int>(blockIdx.y) * rows, end.num_rows};
    split_f32<Type, rows>(pair, tile, x, wide, taken, end, width);
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
linear_dot(EIGHT_PAIRS, CODES, ENDS)
{
    if constexpr (!Type::is_float)
        linear_split<DotForm<Type>>(THE_PAIRS, THE_CODES, THE_END, width);
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
linear_mma_8(EIGHT_PAIRS, CODES, ENDS)
{
    if constexpr (!Type::is_float)
        linear_split<MmaForm<Type, 1>>(THE_PAIRS, THE_CODES, THE_END, width);
}

extern "C" __global__ void __launch_bounds__(THREADS, 2)
linear_mma_16(EIGHT_PAIRS, CODES, ENDS)
{
    if constexpr (!Type::is_float)
        linear_split<MmaForm<Type, 2>>(THE_PAIRS, THE_CODES, THE_END, width);
}

extern "C" __global__ void __launch_bounds__(THREADS, 2)
linear_tiled(EIGHT_PAIRS, CODES, ENDS)
{
    if constexpr (!Type::is_float)
        tiled<Type>(THE_PAIRS, THE_CODES, THE_END, width);
}

extern "C" __global__ void __launch_bounds__(THREADS, 3)
linear_f32_8(EIGHT_PAIRS, const float *x, int wide, ENDS)
{
    linear_f32<8>(THE_PAIRS, x, wide, THE_END, width);
}

extern "C" __global__ void __launch_bounds__(THREADS, 2)
linear_f32_16(EIGHT_PAIRS, const float *x, int wide, ENDS)
{
    linear_f32<16>(THE_PAIRS, x, wide, THE_END, width);
}
