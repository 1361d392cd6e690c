/* One decoder per quant type: a block of one weight row to codes and its scales.
 *
 * codes[0 .. block) are bytes without sign: a weight is scale * (byte - offset) + minimum, where
 * scale = (factor * d) * sc[sub-block] and minimum = dmin * m[sub-block]. d and dmin are f16, of
 * MXFP4 bf16. Blocks of one sub-block have no sc and m: they count as 1.
 * Twin: specrt/reference/quant_blocks.py.
 */
#include "linear.h"
#include "quant_tables.h"
#include "simd.h"

struct scales_of_block {
    uint16_t d, dmin;
    int8_t sc[16];
    uint8_t m[16];
};

typedef void decode_fn(const uint8_t *restrict b, uint8_t *restrict codes,
                       struct scales_of_block *restrict s);

static inline uint16_t load_u16(const uint8_t *p) { uint16_t x; memcpy(&x, p, 2); return x; }
static inline uint32_t load_u32(const uint8_t *p) { uint32_t x; memcpy(&x, p, 4); return x; }
/* Minus an f16. */
static inline uint16_t load_negative(const uint8_t *p) { return load_u16(p) ^ 0x8000; }

/* Sixteen bytes as GCC's and clang's own vectors: any instruction set, no loop to guess. What is
 * stored is read again in pieces of 16 at most, so that the loads are served from the stores. */
typedef uint8_t u8x16 __attribute__((vector_size(16)));
typedef uint64_t u64x2 __attribute__((vector_size(16)));

static inline u8x16 load_16(const uint8_t *p) { u8x16 x; memcpy(&x, p, 16); return x; }
static inline void store_16(uint8_t *p, u8x16 x) { memcpy(p, &x, 16); }

/* n bytes, a multiple of 16, to n low nibbles and n high ones behind them. */
static inline void nibbles(const uint8_t *qs, int n, uint8_t *codes)
{
    for (int i = 0; i < n; i += 16) {
        store_16(codes + i, load_16(qs + i) & 15);
        store_16(codes + n + i, load_16(qs + i) >> 4);
    }
}

/* 255 in byte i where bit i of 16 is set. */
static inline u8x16 bit_mask(uint32_t bits)
{
    const u8x16 bit = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    const uint64_t each = 0x0101010101010101u;
    const u64x2 spread = {(bits & 255) * each, (bits >> 8 & 255) * each};
    return (u8x16)(((u8x16)spread & bit) == bit);
}

/* 16 nibbles low and 16 high, with the 32 bits as their fifth. */
static inline void five_bits(const uint8_t *qs, uint32_t bits, uint8_t *codes)
{
    store_16(codes, (load_16(qs) & 15) | (bit_mask(bits) & 16));
    store_16(codes + 16, (load_16(qs) >> 4) | (bit_mask(bits >> 16) & 16));
}

static void decode_q4_0(const uint8_t *restrict b, uint8_t *restrict codes,
                        struct scales_of_block *restrict s)
{
    s->d = load_u16(b);
    nibbles(b + 2, 16, codes);
}

static void decode_q4_1(const uint8_t *restrict b, uint8_t *restrict codes,
                        struct scales_of_block *restrict s)
{
    s->d = load_u16(b);
    s->dmin = load_u16(b + 2);
    nibbles(b + 4, 16, codes);
}

static void decode_q5_0(const uint8_t *restrict b, uint8_t *restrict codes,
                        struct scales_of_block *restrict s)
{
    s->d = load_u16(b);
    five_bits(b + 6, load_u32(b + 2), codes);
}

static void decode_q5_1(const uint8_t *restrict b, uint8_t *restrict codes,
                        struct scales_of_block *restrict s)
{
    s->d = load_u16(b);
    s->dmin = load_u16(b + 2);
    five_bits(b + 8, load_u32(b + 4), codes);
}

static void decode_q8_0(const uint8_t *restrict b, uint8_t *restrict codes,
                        struct scales_of_block *restrict s)
{
    s->d = load_u16(b);
    for (int i = 0; i < 32; i++)
        codes[i] = b[2 + i] ^ 128;
}

static void decode_q2_k(const uint8_t *restrict b, uint8_t *restrict codes,
                        struct scales_of_block *restrict s)
{
    const uint8_t *qs = b + 16;
    s->d = load_u16(b + 80);
    s->dmin = load_negative(b + 82);
    for (int i = 0; i < 16; i++) {
        s->sc[i] = b[i] & 15;
        s->m[i] = b[i] >> 4;
    }
    for (int half = 0; half < 2; half++)
        for (int shift = 0; shift < 8; shift += 2)
            for (int i = 0; i < 32; i++)
                *codes++ = qs[32 * half + i] >> shift & 3;
}

static void decode_q3_k(const uint8_t *restrict b, uint8_t *restrict codes,
                        struct scales_of_block *restrict s)
{
    const uint8_t *hmask = b, *qs = b + 32, *scales = b + 96;
    s->d = load_u16(b + 108);
    for (int i = 0; i < 16; i++) {
        int low = scales[i & 7] >> (i & 8 ? 4 : 0) & 15;
        int high = scales[8 + (i & 3)] >> (i >> 2) * 2 & 3;
        s->sc[i] = (int8_t)((low | high << 4) - 32);
    }
    for (int group = 0; group < 8; group++)
        for (int i = 0; i < 32; i++)
            *codes++ = (uint8_t)((qs[32 * (group >> 2) + i] >> (group & 3) * 2 & 3)
                                 | (hmask[i] >> group & 1) << 2);
}

/* The eight 6-bit scales and minima of Q4_K and Q5_K. */
static inline void k_scales(const uint8_t *restrict b, struct scales_of_block *restrict s)
{
    const uint8_t *six = b + 4;
    s->d = load_u16(b);
    s->dmin = load_negative(b + 2);
    for (int i = 0; i < 4; i++) {
        s->sc[i] = six[i] & 63;
        s->m[i] = six[4 + i] & 63;
        s->sc[4 + i] = (six[8 + i] & 15) | (six[i] >> 2 & 48);
        s->m[4 + i] = six[8 + i] >> 4 | (six[4 + i] >> 2 & 48);
    }
}

static void decode_q4_k(const uint8_t *restrict b, uint8_t *restrict codes,
                        struct scales_of_block *restrict s)
{
    k_scales(b, s);
    for (int i = 0; i < 4; i++)
        nibbles(b + 16 + 32 * i, 32, codes + 64 * i);
}

static void decode_q5_k(const uint8_t *restrict b, uint8_t *restrict codes,
                        struct scales_of_block *restrict s)
{
    k_scales(b, s);
    for (int i = 0; i < 32; i += 16) {
        u8x16 high = load_16(b + 16 + i);
        for (int group = 0; group < 4; group++) {
            u8x16 qs = load_16(b + 48 + 32 * group + i);
            store_16(codes + 64 * group + i, (qs & 15) | (high << 4 & 16));
            store_16(codes + 64 * group + 32 + i, (qs >> 4) | (high << 3 & 16));
            high >>= 2;
        }
    }
}

static void decode_q6_k(const uint8_t *restrict b, uint8_t *restrict codes,
                        struct scales_of_block *restrict s)
{
    s->d = load_u16(b + 208);
    memcpy(s->sc, b + 192, 16);
    for (int half = 0; half < 2; half++, codes += 128)
        for (int i = 0; i < 32; i += 16) {
            u8x16 a = load_16(b + 64 * half + i), c = load_16(b + 64 * half + 32 + i);
            u8x16 high = load_16(b + 128 + 32 * half + i);
            store_16(codes + i, (a & 15) | (high << 4 & 48));
            store_16(codes + 32 + i, (c & 15) | (high << 2 & 48));
            store_16(codes + 64 + i, (a >> 4) | (high & 48));
            store_16(codes + 96 + i, (c >> 4) | (high >> 2 & 48));
        }
}

/* Codebook values, made unsigned by + 128 in the table. */
static inline void table_nibbles(const uint8_t *values, const uint8_t *qs, uint8_t *codes)
{
    nibbles(qs, 16, codes);
    lookup_16(values, codes);
    lookup_16(values, codes + 16);
}

static void decode_iq4_nl(const uint8_t *restrict b, uint8_t *restrict codes,
                          struct scales_of_block *restrict s)
{
    s->d = load_u16(b);
    table_nibbles(iq4_values, b + 2, codes);
}

static void decode_iq4_xs(const uint8_t *restrict b, uint8_t *restrict codes,
                          struct scales_of_block *restrict s)
{
    uint32_t high = load_u16(b + 2);
    s->d = load_u16(b);
    for (int i = 0; i < 8; i++) {
        uint32_t low = b[4 + i / 2] >> 4 * (i & 1) & 15;
        s->sc[i] = (int8_t)((int)(low | (high >> 2 * i & 3) << 4) - 32);
        table_nibbles(iq4_values, b + 8 + 16 * i, codes + 32 * i);
    }
}

/* Half of 2^(e - 127), since the codes are doubled. */
static void decode_mxfp4(const uint8_t *restrict b, uint8_t *restrict codes,
                         struct scales_of_block *restrict s)
{
    uint32_t e = *b;
    s->d = (uint16_t)(e < 2 ? 0x20u << e : (e - 1) << 7);
    table_nibbles(mxfp4_values, b + 1, codes);
}

/* Sixteen codebook values, negated where the sign bit is set, made unsigned by + 128. */
static inline void signed_codes(uint64_t low, uint64_t high, uint32_t signs, uint8_t *codes)
{
    u8x16 negate = bit_mask(signs);
    store_16(codes, ((u8x16)(u64x2){low, high} ^ negate) - negate + 128);
}

/* Seven sign bits as eight: the eighth makes their number even. */
static inline uint32_t even_signs(uint32_t bits)
{
    bits &= 127;
    return bits | (uint32_t)__builtin_parity(bits) << 7;
}

static inline uint32_t two_even_signs(uint32_t bits)
{
    return even_signs(bits) | even_signs(bits >> 7) << 8;
}

static inline uint64_t grid_8(const int8_t *grid, uint32_t index)
{
    uint64_t values;
    memcpy(&values, grid + 8 * index, 8);
    return values;
}

static inline uint64_t grid_4(const int8_t *grid, uint32_t first, uint32_t second)
{
    uint32_t a, b;
    memcpy(&a, grid + 4 * first, 4);
    memcpy(&b, grid + 4 * second, 4);
    return a | (uint64_t)b << 32;
}

static void decode_iq2_xxs(const uint8_t *restrict b, uint8_t *restrict codes,
                           struct scales_of_block *restrict s)
{
    s->d = load_u16(b);
    for (int i = 0; i < 8; i++) {
        const uint8_t *index = b + 2 + 8 * i;
        uint32_t word = load_u32(index + 4);
        s->sc[i] = (int8_t)(2 * (word >> 28) + 1);
        for (int j = 0; j < 4; j += 2, codes += 16)
            signed_codes(grid_8(iq2_xxs_grid, index[j]), grid_8(iq2_xxs_grid, index[j + 1]),
                         two_even_signs(word >> 7 * j), codes);
    }
}

/* 4-bit scales k, as 2 k + 1. */
static inline void odd_scales(const uint8_t *scales, int n, int8_t *sc)
{
    for (int i = 0; i < n; i++)
        sc[i] = (int8_t)(2 * (scales[i / 2] >> 4 * (i & 1) & 15) + 1);
}

static void decode_iq2_xs(const uint8_t *restrict b, uint8_t *restrict codes,
                          struct scales_of_block *restrict s)
{
    s->d = load_u16(b);
    odd_scales(b + 66, 16, s->sc);
    for (int i = 0; i < 16; i++, codes += 16) {
        uint32_t q = load_u16(b + 2 + 4 * i), next = load_u16(b + 4 + 4 * i);
        signed_codes(grid_8(iq2_xs_grid, q & 511), grid_8(iq2_xs_grid, next & 511),
                     even_signs(q >> 9) | even_signs(next >> 9) << 8, codes);
    }
}

static void decode_iq2_s(const uint8_t *restrict b, uint8_t *restrict codes,
                         struct scales_of_block *restrict s)
{
    const uint8_t *qs = b + 2, *signs = b + 34, *qh = b + 66;
    s->d = load_u16(b);
    odd_scales(b + 74, 16, s->sc);
    for (int i = 0; i < 16; i++, codes += 16) {
        uint32_t high = (uint32_t)qh[i / 2] >> 4 * (i & 1);
        uint32_t first = qs[2 * i] | (high & 3) << 8, second = qs[2 * i + 1] | (high & 12) << 6;
        signed_codes(grid_8(iq2_s_grid, first), grid_8(iq2_s_grid, second),
                     load_u16(signs + 2 * i), codes);
    }
}

static void decode_iq3_xxs(const uint8_t *restrict b, uint8_t *restrict codes,
                           struct scales_of_block *restrict s)
{
    const uint8_t *qs = b + 2;
    s->d = load_u16(b);
    for (int i = 0; i < 8; i++) {
        uint32_t word = load_u32(b + 66 + 4 * i);
        s->sc[i] = (int8_t)(2 * (word >> 28) + 1);
        for (int j = 0; j < 4; j += 2, codes += 16, qs += 4)
            signed_codes(grid_4(iq3_xxs_grid, qs[0], qs[1]), grid_4(iq3_xxs_grid, qs[2], qs[3]),
                         two_even_signs(word >> 7 * j), codes);
    }
}

static void decode_iq3_s(const uint8_t *restrict b, uint8_t *restrict codes,
                         struct scales_of_block *restrict s)
{
    const uint8_t *qs = b + 2, *qh = b + 66, *signs = b + 74, *scales = b + 106;
    s->d = load_u16(b);
    odd_scales(scales, 8, s->sc);
    for (int i = 0; i < 16; i++, codes += 16, qs += 4) {
        uint32_t high = (uint32_t)qh[i / 2] << 8 >> 4 * (i & 1); /* bit 8 first */
        uint64_t a = grid_4(iq3_s_grid, qs[0] | (high & 256), qs[1] | (high >> 1 & 256));
        uint64_t c = grid_4(iq3_s_grid, qs[2] | (high >> 2 & 256), qs[3] | (high >> 3 & 256));
        signed_codes(a, c, load_u16(signs + 2 * i), codes);
    }
}
