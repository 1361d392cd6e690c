/* pack: a part is PACK_TILES tiles; quant_types.h says how they lie. Lanes behind the last weight row repeat
 * it. */
#include "decode.h"
#include "rows.h"

struct packed_type {
    int block, num_bytes, sub, minimum, low, high;
    enum scales scales;
    decode_fn *decode;
    const uint8_t *values;
};

static const struct packed_type packed_types[NUM_TYPES] = {
#define X(TYPE, name, block, bytes, sub, offset, minimum, low, high, scales, factor, values) \
    [TYPE_##TYPE] = {block, bytes, sub, minimum, low, high, scales, decode_##name, values},
    QUANT_TYPES(X)
#undef X
};

/* bits of eight groups of codes, from bit first on, to vectors of 64 bytes. */
static uint8_t *pack_bits(const uint8_t groups[8 * 64], int first, int bits, uint8_t *to)
{
    for (int group = 0; bits && group < 8; to += 64)
        for (int shift = 0; shift < 8; shift += bits, group++)
            for (int i = 0; i < 64; i++) {
                uint8_t code = (uint8_t)((groups[64 * group + i] >> first & ((1 << bits) - 1)) << shift);
                to[i] = shift ? to[i] | code : code;
            }
    return to;
}

/* Sixteen rows of 32 decoded codes to vectors; inverse names the place of a value. */
static uint8_t *pack_codes(const struct packed_type *type, const uint8_t *rows,
                           const uint8_t *inverse, uint8_t *to)
{
    uint8_t groups[8 * 64];
    for (int half = 0; half < 2; half++)
        transpose_16x4(rows + 16 * half, (size_t)type->block, groups + 256 * half);
    for (int i = 0; type->values && i < 8 * 64; i++)
        groups[i] = inverse[groups[i]];
    to = pack_bits(groups, 0, type->low, to);
    return pack_bits(groups, type->low, type->high, to);
}

/* d and dmin of a block. */
static uint8_t *pack_scales(const struct packed_type *type, const struct scales_of_block *s,
                            uint8_t *to)
{
    for (int lane = 0; lane < LANES; lane++) {
        memcpy(to + 2 * lane, &s[lane].d, 2);
        if (type->minimum)
            memcpy(to + 2 * LANES + 2 * lane, &s[lane].dmin, 2);
    }
    return to + (type->minimum ? 4 : 2) * LANES;
}

static uint8_t *pack_sub_scales(const struct packed_type *type, const struct scales_of_block *s,
                                int sub, uint8_t *to)
{
    if (type->scales != SCALES_BYTES && type->scales != SCALES_NIBBLES)
        return to;
    const int both = type->scales == SCALES_BYTES && type->minimum;
    for (int lane = 0; lane < LANES; lane++) {
        uint8_t sc = (uint8_t)s[lane].sc[sub], m = s[lane].m[sub];
        to[lane] = type->scales == SCALES_NIBBLES ? (uint8_t)(sc | m << 4) : sc;
        if (both)
            to[LANES + lane] = m;
    }
    return to + (both ? 2 : 1) * LANES;
}

static void pack_quants(const struct pack_args *args, const uint8_t *const *row, uint8_t *tile)
{
    const struct packed_type *type = &packed_types[args->from.type];
    const int num_blocks = args->from.num_cols / type->block;
    uint8_t codes[LANES * 256], inverse[256] = {0};
    struct scales_of_block s[LANES];
    for (int i = 15; type->values && i >= 0; i--)
        inverse[type->values[i]] = (uint8_t)i;
    for (int block = 0; block < num_blocks; block++) {
        for (int lane = 0; lane < LANES; lane++) {
            type->decode(row[lane] + block * type->num_bytes, codes + lane * type->block, s + lane);
            if (args->from.type == TYPE_MXFP4 && s[lane].d < MXFP4_SMALLEST)
                s[lane].d = 0;
        }
        tile = pack_scales(type, s, tile);
        for (int column = 0; column < type->block; column += 32) {
            tile = pack_codes(type, codes + column, inverse, tile);
            for (int sub = column / type->sub; sub < (column + 32) / type->sub; sub++)
                tile = pack_sub_scales(type, s, sub, tile);
        }
    }
}

/* Float values, dequantised if the file's are not, of size bytes each. */
static void pack_floats(const struct pack_args *args, const int *row, uint8_t *tile)
{
    const int columns = args->from.num_cols, is_f32 = args->to.type == TYPE_F32;
    float values[256];
    for (int lane = 0; lane < LANES; lane++)
        for (int first = 0; first < columns; first += 256) {
            int n = columns - first < 256 ? columns - first : 256;
            if (is_f32)
                KERNEL(read_row)(&args->from, row[lane], first, n, 1, values);
            for (int i = 0; i < n; i++) {
                size_t at = (size_t)(first + i), to = LANES * at + (size_t)lane;
                const uint8_t *raw = args->from.raw + (size_t)row[lane] * args->from.row_bytes;
                if (is_f32)
                    memcpy(tile + 4 * to, values + i, 4);
                else
                    memcpy(tile + 2 * to, raw + 2 * at, 2);
            }
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
        pack_quants(args, raw, tile);
}

void KERNEL(pack)(const void *pointer, int part, void *scratch)
{
    const struct pack_args *args = pointer;
    const int num_tiles = (args->from.num_rows + TILE_ROWS - 1) / TILE_ROWS;
    (void)scratch;
    for (int i = part * PACK_TILES; i < (part + 1) * PACK_TILES && i < num_tiles; i++)
        pack_tile(args, i);
}
