/* What copy, select and store_rows share: moving one row.
 *
 * A row is num_items items of 16, 4 or 1 bytes: addresses and strides (in bytes from row to row)
 * are multiples of that. The blocks of grid y have parts of a row; a thread takes every
 * (THREADS * gridDim.y)-th item.
 */
#include "common.cuh"

#define THREADS 256

/* Write this block's part of a row, or zeros if from is null. */
template <class Item>
__device__ __forceinline__ void move_row(const char *from, char *to, long long num_items)
{
    const Item *items = reinterpret_cast<const Item *>(from);
    Item *out = reinterpret_cast<Item *>(to);
    const long long step = static_cast<long long>(THREADS) * gridDim.y;
    for (long long i = static_cast<long long>(blockIdx.y) * THREADS + threadIdx.x; i < num_items;
         i += step)
        store(out + i, from ? load(items + i) : Item());
}
