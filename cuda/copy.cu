/* copy: rows to rows; specrt/reference/copy.py says what it computes.
 *
 * A row is num_items items of 16, 4 or 1 bytes, as the entry says: addresses and strides (in bytes
 * from row to row) are multiples of that. Grid: rows in x, parts of a row in y; a thread takes
 * every (THREADS * gridDim.y)-th item. x and out do not overlap.
 */
#include "common.cuh"

#define THREADS 256

template <class Item>
__device__ __forceinline__ void copy(const char *x, char *out, long long x_stride,
                                     long long out_stride, long long num_items)
{
    const long long row = blockIdx.x, step = static_cast<long long>(THREADS) * gridDim.y;
    const Item *from = reinterpret_cast<const Item *>(x + row * x_stride);
    Item *to = reinterpret_cast<Item *>(out + row * out_stride);
    for (long long i = static_cast<long long>(blockIdx.y) * THREADS + threadIdx.x; i < num_items;
         i += step)
        store(to + i, load(from + i));
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
