/* copy: rows to rows; specrt/reference/copy.py says what it computes.
 *
 * Items and strides are as in rows.cuh, of the size that the entry says. Grid: rows in x, parts of
 * a row in y. x and out do not overlap.
 */
#include "rows.cuh"

template <class Item>
__device__ __forceinline__ void copy(const char *x, char *out, long long x_stride,
                                     long long out_stride, long long num_items)
{
    const long long row = blockIdx.x;
    move_row<Item>(x + row * x_stride, out + row * out_stride, num_items);
}

extern "C" __global__ void __launch_bounds__(THREADS)
copy_16(const char *x, char *out, long long x_stride, long long out_stride, long long num_items)
{
    copy<uint4>(x, out, x_stride, out_stride, num_items);
}

extern "C" __global__ void __launch_bounds__(THREADS)
copy_4(const char *x, char *out, long long x_stride, long long out_stride, long long num_items)
{
    copy<unsigned>(x, out, x_stride, out_stride, num_items);
}

extern "C" __global__ void __launch_bounds__(THREADS)
copy_1(const char *x, char *out, long long x_stride, long long out_stride, long long num_items)
{
    copy<unsigned char>(x, out, x_stride, out_stride, num_items);
}
