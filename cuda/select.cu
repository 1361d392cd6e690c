/* select: rows by their numbers; specrt/reference/select.py says what it computes.
 *
 * x has num_rows rows, index and out as many as grid x has blocks. Items and strides are as in
 * rows.cuh, of the size that the entry says. Grid: rows of out in x, parts of a row in y. x and out
 * do not overlap.
 */
#include "rows.cuh"

template <class Item>
__device__ __forceinline__ void select(const char *x, const int *index, char *out, int num_rows,
                                       long long x_stride, long long out_stride,
                                       long long num_items)
{
    const long long row = blockIdx.x, chosen = load(index + row);
    const bool there = 0 <= chosen && chosen < num_rows;
    move_row<Item>(there ? x + chosen * x_stride : nullptr, out + row * out_stride, num_items);
}

extern "C" __global__ void __launch_bounds__(THREADS)
select_16(const char *x, const int *index, char *out, int num_rows, long long x_stride,
          long long out_stride, long long num_items)
{
    select<uint4>(x, index, out, num_rows, x_stride, out_stride, num_items);
}

extern "C" __global__ void __launch_bounds__(THREADS)
select_4(const char *x, const int *index, char *out, int num_rows, long long x_stride,
         long long out_stride, long long num_items)
{
    select<unsigned>(x, index, out, num_rows, x_stride, out_stride, num_items);
}

extern "C" __global__ void __launch_bounds__(THREADS)
select_1(const char *x, const int *index, char *out, int num_rows, long long x_stride,
         long long out_stride, long long num_items)
{
    select<unsigned char>(x, index, out, num_rows, x_stride, out_stride, num_items);
}
