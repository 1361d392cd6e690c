/* Cached keys and values of one layer, in pages of 64 positions, as rope_kv writes and attention
 * reads them.
 *
 * k and v are [pages, heads, 64, row_bytes]: a row is a head's values at one position, in f32, f16
 * or int8, padded with zeros to 16 bytes. For q8_0 the scales, of 32 dims each, are f16: k_scale
 * and v_scale [pages, heads, dims / 32, 64].
 */
#include "common.cuh"

#define PAGE 64

/* The step values that say where rows stand; table is the page table or the ring table. */
struct Step {
    const int *positions, *row_seqs, *table;
    int table_width;
    int ring_pages; /* > 0: chunk c lies in page table[seq, c % ring_pages] */
};

__device__ __forceinline__ int page_of(const Step &step, int seq, int chunk)
{
    const int at = step.ring_pages ? chunk % step.ring_pages : chunk;
    return load(step.table + static_cast<long long>(seq) * step.table_width + at);
}
