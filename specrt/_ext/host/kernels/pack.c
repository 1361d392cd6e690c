/* pack: a part is PACK_TILES tiles; quant_types.h says how they lie. Lanes behind the last weight row
 * repeat it. */
#include "decode.h"
#include "rows.h"


/* A line of quant_types.h, as the constants of one type's own code. */
struct packed_type {
    int block, num_bytes, sub, minimum, low, high;
    enum scales scales;
    const uint8_t *values;
    decode_fn *decode;
};

/* bits of eight groups of codes, from bit first on, to vectors of 64 bytes. */
ALWAYS_INLINE uint8_t *pack_bits(const uint8_t groups[8 * 64], const int first, const int bits,
                                 uint8_t *to)
{
    for (int group = 0; bits && group < 8; group += 8 / bits, to += 64)
        for (int i = 0; i < 64; i += 16) {
            u8x16 packed = {0};
            for (int j = 0; j < 8 / bits; j++) {
                u8x16 codes = load_16(groups + 64 * (group + j) + i) >> first;
                packed |= (codes & (uint8_t)((1 << bits) - 1)) << (j * bits);
            }
            store_16(to + i, packed);
        }
    return to;
}

/* Values to their first places in the table. */
ALWAYS_INLINE void to_places(const uint8_t *values, uint8_t *codes, const int n)
{
    for (int i = 0; i < n; i += 16) {
        const u8x16 code = load_16(codes + i);
        u8x16 place = {0};
        for (int j = 15; j > 0; j--) {
            const u8x16 here = (u8x16)(code == values[j]);
            place = (place & ~here) | (here & (uint8_t)j);
        }
        store_16(codes + i, place & ~(u8x16)(code == values[0]));
    }
}

/* Sixteen rows of 32 decoded codes to vectors. */
ALWAYS_INLINE uint8_t *pack_codes(const struct packed_type type, const uint8_t *rows, uint8_t *to)
{
    uint8_t groups[8 * 64];
    for (int half = 0; half < 2; half++)
        transpose_16x4(rows + 16 * half, (size_t)type.block, groups + 256 * half);
    if (type.values)
        to_places(type.values, groups, 8 * 64);
    to = pack_bits(groups, 0, type.low, to);
    return pack_bits(groups, type.low, type.high, to);
}

/* d and dmin of a block. */
ALWAYS_INLINE uint8_t *pack_scales(const struct packed_type type, const struct scales_of_block *s,
                                   uint8_t *to)
{
    for (int lane = 0; lane < LANES; lane++) {
        memcpy(to + 2 * lane, &s[lane].d, 2);
        if (type.minimum)
            memcpy(to + 2 * LANES + 2 * lane, &s[lane].dmin, 2);
    }
    return to + (type.minimum ? 4 : 2) * LANES;
}

ALWAYS_INLINE uint8_t *pack_sub_scales(const struct packed_type type,
                                       const struct scales_of_block *s, int sub, uint8_t *to)
{
    if (type.scales != SCALES_BYTES && type.scales != SCALES_NIBBLES)
        return to;
    const int both = type.scales == SCALES_BYTES && type.minimum;
    for (int lane = 0; lane < LANES; lane++) {
        uint8_t sc = (uint8_t)s[lane].sc[sub], m = s[lane].m[sub];
        to[lane] = type.scales == SCALES_NIBBLES ? (uint8_t)(sc | m << 4) : sc;
        if (both)
            to[LANES + lane] = m;
    }
    return to + (both ? 2 : 1) * LANES;
}

ALWAYS_INLINE void pack_quants(const struct packed_type type, const uint8_t *const row[LANES],
                               int num_cols, uint8_t *tile)
{
    uint8_t codes[LANES * 256];
    struct scales_of_block s[LANES];
    for (int block = 0; block < num_cols / type.block; block++) {
        for (int lane = 0; lane < LANES; lane++) {
            type.decode(row[lane] + block * type.num_bytes, codes + lane * type.block, s + lane);
            if (type.scales == SCALES_BF16 && s[lane].d < MXFP4_SMALLEST)
                s[lane].d = 0;
        }
        tile = pack_scales(type, s, tile);
        for (int column = 0; column < type.block; column += 32) {
            tile = pack_codes(type, codes + column, tile);
            for (int sub = column / type.sub; sub < (column + 32) / type.sub; sub++)
                tile = pack_sub_scales(type, s, sub, tile);
        }
    }
}

typedef void pack_fn(const uint8_t *const row[LANES], int num_cols, uint8_t *tile);

#define X(TYPE, name, block, bytes, sub, offset, minimum, low, high, scales, factor, values)      \
    static void pack_##name(const uint8_t *const row[LANES], int num_cols, uint8_t *tile)         \
    {                                                                                             \
        const struct packed_type type = {block, bytes, sub,    minimum,      low,                 \
                                         high,  scales, values, decode_##name};                   \
        pack_quants(type, row, num_cols, tile);                                                   \
    }
QUANT_TYPES(X)
#undef X

static pack_fn *const pack_types[NUM_TYPES] = {
#define X(TYPE, name, ...) [TYPE_##TYPE] = pack_##name,
    QUANT_TYPES(X)
#undef X
};

/* Sixteen rows of n values of size bytes to columns of sixteen. */
ALWAYS_INLINE void transpose(const uint8_t *rows, size_t stride, int n, const int size,
                             uint8_t *to)
{
    for (int i = 0; i < n; i++)
        for (int lane = 0; lane < LANES; lane++, to += size)
            memcpy(to, rows + (size_t)lane * stride + (size_t)i * (size_t)size, (size_t)size);
}

/* Float values, dequantised if the file's are not, of as many bytes each. */
static void pack_floats(const struct pack_args *args, const int row[LANES], uint8_t *tile)
{
    const int columns = args->from.num_cols, size = args->to.type == TYPE_F32 ? 4 : 2;
    float values[LANES][256];
    for (int first = 0; first < columns; first += 256) {
        const int n = columns - first < 256 ? columns - first : 256;
        for (int lane = 0; lane < LANES; lane++) {
            const uint8_t *raw = args->from.raw + (size_t)row[lane] * args->from.row_bytes;
            if (size == 4)
                KERNEL(read_row)(&args->from, row[lane], first, n, 1, values[lane]);
            else
                memcpy(values[lane], raw + 2 * (size_t)first, 2 * (size_t)n);
        }
        uint8_t *to = tile + (size_t)size * LANES * (size_t)first;
        if (size == 4)
            transpose((const uint8_t *)values, sizeof *values, n, 4, to);
        else
            transpose((const uint8_t *)values, sizeof *values, n, 2, to);
    }
}

static void pack_tile(const struct pack_args *args, int at)
{
    uint8_t *tile = args->tiles + (size_t)at * args->to.tile_bytes;
    const uint8_t *raw[LANES];
    int row[LANES];
    for (int lane = 0; lane < LANES; lane++) {
        row[lane] = at * TILE_ROWS + lane;
        if (row[lane] >= args->from.num_rows)
            row[lane] = args->from.num_rows - 1;
        raw[lane] = args->from.raw + (size_t)row[lane] * args->from.row_bytes;
    }
    if (args->to.form == FORM_F32)
        pack_floats(args, row, tile);
    else
        pack_types[args->from.type](raw, args->from.num_cols, tile);
}

void KERNEL(pack)(const void *pointer, int part, void *scratch)
{
    const struct pack_args *args = pointer;
    const int num_tiles = (args->from.num_rows + TILE_ROWS - 1) / TILE_ROWS;
    (void)scratch;
    for (int i = part * PACK_TILES; i < (part + 1) * PACK_TILES && i < num_tiles; i++)
        pack_tile(args, i);
}
