/* Cached keys and values of one layer, in pages of 64 positions, as rope_kv writes them and attention
 * reads them.
 *
 * k is [pages, heads, dims, 64]: 16 keys lie in 16 lanes and a dot needs no sum over lanes. v is
 * [pages, heads, 64, row_dims], row_dims being dims rounded up to 16. For q8_0 both hold int8 codes,
 * and the scales, of 32 dims each, are f16: k_scale [pages, heads, dims / 32, 64] and v_scale
 * [pages, heads, 64, dims / 32].
 */
#ifndef SPECRT_KV_H
#define SPECRT_KV_H

#include <stddef.h>
#include <stdint.h>

#define PAGE 64

enum kv_type { KV_F32, KV_F16, KV_Q8_0 };

struct kv_cache {
    void *k, *v;
    uint16_t *k_scale, *v_scale; /* q8_0 only */
    int type, num_heads, dims, row_dims;
    int ring_pages; /* > 0: chunk c lies in page table[seq, c % ring_pages] */
};

/* The step values that say where rows stand; table is the page table or the ring table. */
struct kv_step {
    const int32_t *positions, *row_seqs, *table;
    int table_width;
};

static inline size_t kv_page(const struct kv_cache *cache, const struct kv_step *step, int seq,
                             int chunk)
{
    int at = cache->ring_pages ? chunk % cache->ring_pages : chunk;
    return (size_t)step->table[(size_t)seq * (size_t)step->table_width + (size_t)at];
}

/* Where the page's block of one head begins, counted in heads. */
static inline size_t kv_block(const struct kv_cache *cache, size_t page, int head)
{
    return page * (size_t)cache->num_heads + (size_t)head;
}

#endif
