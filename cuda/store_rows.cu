/* store_rows: rows into rings by position; specrt/reference/store_rows.py says what it computes.
 *
 * x is [T, row_bytes], out is [slots, ring, row_bytes]; row_seqs and positions are [>= T], slots
 * is by sequence. Items are as in rows.cuh, of the size that the entry says. Grid: rows in x, parts
 * of a row in y. x and out do not overlap, and no two rows have one place.
 */
#include "rows.cuh"

template <class Item>
__device__ __forceinline__ void store_rows(const char *x, const int *positions, const int *row_seqs,
                                           const int *slots, char *out, int ring,
                                           long long num_items)
{
    const long long row = blockIdx.x, row_bytes = num_items * static_cast<int>(sizeof(Item));
    const long long slot = load(slots + load(row_seqs + row));
    const long long place = slot * ring + load(positions + row) % ring;
    move_row<Item>(x + row * row_bytes, out + place * row_bytes, num_items);
}

extern "C" __global__ void __launch_bounds__(THREADS)
store_rows_16(const char *x, const int *positions, const int *row_seqs, const int *slots, char *out,
              int ring, long long num_items)
{
    store_rows<uint4>(x, positions, row_seqs, slots, out, ring, num_items);
}

extern "C" __global__ void __launch_bounds__(THREADS)
store_rows_4(const char *x, const int *positions, const int *row_seqs, const int *slots, char *out,
             int ring, long long num_items)
{
    store_rows<unsigned>(x, positions, row_seqs, slots, out, ring, num_items);
}
