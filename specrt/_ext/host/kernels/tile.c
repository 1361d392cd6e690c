/* A tile of sixteen weight rows times a panel of input rows: specrt/reference/linear.py says what it
 * is, quant_types.h how weights lie, linear.h how rows do.
 *
 * Codes go from memory through registers into the dots, once for all rows of a panel; a row's
 * accumulator stays in a register through a segment. So a row's additions are its own, and do not
 * depend on how many rows there are.
 */
#include "tile.h"
#include "quant_tables.h"

/* Bytes that are fetched ahead of the loads. */
#define AHEAD 2048


/* The most input rows that pass together; registers decide, the result does not depend on it. */
#if defined(__AVX512F__)
#define GROUP PANEL
#elif defined(__AVX2__)
#define GROUP 2
#else
#define GROUP 1
#endif

/* call(n) with the constant n = min(left, GROUP). */
#define GROUP_CASE(call, n) \
    case n:                 \
        call(n);            \
        break;
#if GROUP == 8
#define GROUPS(call) \
    GROUP_CASE(call, 1) GROUP_CASE(call, 2) GROUP_CASE(call, 3) GROUP_CASE(call, 4) \
    GROUP_CASE(call, 5) GROUP_CASE(call, 6) GROUP_CASE(call, 7) GROUP_CASE(call, 8)
#elif GROUP == 2
#define GROUPS(call) GROUP_CASE(call, 1) GROUP_CASE(call, 2)
#else
#define GROUPS(call) GROUP_CASE(call, 1)
#endif
#define WITH_GROUP(left, call)                 \
    switch ((left) < GROUP ? (left) : GROUP) { \
        GROUPS(call)                           \
    }

struct panel {
    const int8_t *q;
    const float *d, *s;
    const int32_t *sums;
    int num_rows;
};

static inline struct panel panel_at(const struct int8_rows *x, const struct acts *acts, int panel)
{
    const size_t start = (size_t)panel * PANEL * (size_t)acts->width;
    return (struct panel){x->q + start, x->d + start / 32, x->s + start / 32, x->sums + start / 16,
                          panel_rows(acts, panel)};
}

/* A type's traits, which are constants wherever they go: see QUANT_TYPES. */
struct form {
    int block, sub, offset, minimum, low, high;
    enum scales scales;
    float factor;
    const uint8_t *values;
};

/* What has to come off a sum of codes times x: dots of wide codes take a part off themselves. */
ALWAYS_INLINE int offset_left(const struct form f)
{
    return f.offset == 128 ? f.offset - DOT_WIDE_OFFSET : f.offset;
}

/* The codes of 32 columns as they are stored; returns what follows them. */
ALWAYS_INLINE const uint8_t *load_codes(const uint8_t *tile, const struct form f, v64 low[8],
                                        v64 high[2])
{
#pragma GCC unroll 8
    for (int i = 0; i < f.low; i++, tile += 64) {
        low[i] = v64_load(tile);
        __builtin_prefetch(tile + AHEAD);
    }
#pragma GCC unroll 2
    for (int i = 0; i < f.high; i++, tile += 64) {
        high[i] = v64_load(tile);
        __builtin_prefetch(tile + AHEAD);
    }
    return tile;
}

/* Four columns of sixteen rows: group < 8 of 32 columns. */
ALWAYS_INLINE v64 code_group(const v64 low[8], const v64 high[2], const int group,
                             const struct form f)
{
    if (f.low == 8)
        return low[group];
    const int bit = group * f.low, place = group * f.high;
    v64 codes = v64_bits(low[bit / 8], bit % 8, (1 << f.low) - 1);
    if (f.high)
        codes = v64_with_high(codes, v64_bits(high[place / 8], place % 8, (1 << f.high) - 1), f.low);
    return f.values ? v64_lookup(v64_set16(f.values), codes) : codes;
}

/* The integer sums of a sub-block, of which q and sums are those of the first row. */
ALWAYS_INLINE void dot_codes(const v64 low[8], const v64 high[2], const int half, const int8_t *q,
                             const int32_t *sums, const size_t stride, const struct form f,
                             const int rows, v16i dot[GROUP])
{
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) {
        v16i sum = v16i_set1(offset_left(f) ? sums[r] : 0);
        if (offset_left(f) && f.sub == 32)
            sum = v16i_add(sum, v16i_set1(sums[r + stride]));
        dot[r] = offset_left(f) ? v16i_mul(sum, v16i_set1(-offset_left(f))) : sum;
    }
#pragma GCC unroll 8
    for (int i = 0; i < f.sub / 4; i++, q += 4 * stride) {
        const v64 w = code_group(low, high, half * f.sub / 4 + i, f);
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
            int32_t four;
            memcpy(&four, q + 4 * r, 4);
            dot[r] = f.offset == 128 ? v16i_dot4_wide(dot[r], w, four) : v16i_dot4(dot[r], w, four);
        }
    }
}

struct scale {
    v16f d, lowest; /* of sixteen rows; lowest only where there is a minimum */
};

/* The scales of a block; returns what follows them. */
ALWAYS_INLINE const uint8_t *load_scale(const uint8_t *tile, const struct form f,
                                        struct scale *scale)
{
    const uint16_t *halves = (const uint16_t *)tile;
    scale->d = f.scales == SCALES_BF16 ? v16f_load_bf16(halves) : v16f_load_f16(halves);
    if (f.factor != 1)
        scale->d = v16f_mul(scale->d, v16f_set1(f.factor));
    scale->lowest = f.minimum ? v16f_load_f16(halves + LANES) : v16f_set1(0.0f);
    return tile + (f.minimum ? 4 : 2) * LANES;
}

/* The scales of a sub-block by those of its block; returns what follows them. */
ALWAYS_INLINE const uint8_t *load_sub_scale(const uint8_t *tile, const struct form f,
                                            const struct scale *block, struct scale *scale)
{
    *scale = *block;
    if (f.scales != SCALES_BYTES && f.scales != SCALES_NIBBLES)
        return tile;
    const int nibbles = f.scales == SCALES_NIBBLES;
    v16i sc = nibbles ? v16i_load_bits(tile, 0, 15) : v16i_load_i8((const int8_t *)tile);
    scale->d = v16f_mul(block->d, v16i_to_float(sc));
    if (!f.minimum)
        return tile + LANES;
    v16i m = nibbles ? v16i_load_bits(tile, 4, 15) : v16i_load_bits(tile + LANES, 0, 255);
    scale->lowest = v16f_mul(block->lowest, v16i_to_float(m));
    return tile + (nibbles ? 1 : 2) * LANES;
}

/* Rows first .. first + rows of a panel times one tile. */
ALWAYS_INLINE void times(const struct weight *weight, const uint8_t *tile, const struct panel *x,
                         const int first, float *out, const struct form f, const int rows)
{
    const size_t stride = GROUP == PANEL ? (size_t)rows : (size_t)x->num_rows;
    const int num_blocks = weight->num_cols / f.block;
    const int step = (num_blocks + NUM_SEGMENTS - 1) / NUM_SEGMENTS;
    const int8_t *q = x->q + 4 * first;
    const float *d = x->d + first, *s = x->s + first;
    const int32_t *sums = x->sums + first;
    v16f total[GROUP], acc[GROUP];
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
        total[r] = v16f_set1(0.0f);
    for (int left = num_blocks; left > 0; left -= step) {
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++)
            acc[r] = v16f_set1(0.0f);
        for (int b = left < step ? left : step; b > 0; b--) {
            struct scale block, scale;
            tile = load_scale(tile, f, &block);
            for (int column = 0; column < f.block; column += 32) {
                v64 low[8], high[2];
                tile = load_codes(tile, f, low, high);
#pragma GCC unroll 2
                for (int half = 0; half < 32 / f.sub; half++) {
                    v16i dot[GROUP];
                    dot_codes(low, high, half, q, sums, stride, f, rows, dot);
                    tile = load_sub_scale(tile, f, &block, &scale);
#pragma GCC unroll 8
                    for (int r = 0; r < rows; r++) {
                        const v16f both = v16f_mul(scale.d, v16f_set1(d[r]));
                        const float sum = f.sub == 32 ? s[r] : d[r] * (float)sums[r];
                        acc[r] = v16f_fma(both, v16i_to_float(dot[r]), acc[r]);
                        if (f.minimum)
                            acc[r] = v16f_fma(scale.lowest, v16f_set1(sum), acc[r]);
                    }
                    q += f.sub * stride;
                    sums += f.sub / 16 * stride;
                }
                d += stride;
                s += stride;
            }
        }
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++)
            total[r] = v16f_add(total[r], acc[r]);
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
        v16f_store(out + LANES * r, total[r]);
}

ALWAYS_INLINE void times_panel(const struct weight *weight, const uint8_t *tile,
                               const struct panel *x, float *out, const struct form f)
{
#define TIMES(rows) times(weight, tile, x, row, out + LANES * row, f, rows)
    for (int row = 0; row < x->num_rows; row += GROUP)
        WITH_GROUP(x->num_rows - row, TIMES)
#undef TIMES
}

typedef void times_fn(const struct weight *weight, const uint8_t *tile, const struct panel *x,
                      float *out);

#define X(TYPE, name, block, bytes, ...)                                                        \
    static void times_##name(const struct weight *weight, const uint8_t *tile,                  \
                             const struct panel *x, float *out)                                 \
    {                                                                                           \
        times_panel(weight, tile, x, out, (struct form){block, __VA_ARGS__});                   \
    }
QUANT_TYPES(X)
#undef X

static times_fn *const times_of[NUM_TYPES] = {
#define X(TYPE, name, ...) [TYPE_##TYPE] = times_##name,
    QUANT_TYPES(X)
#undef X
};

ALWAYS_INLINE v16f load_column(const uint8_t *tile, size_t column, const int type)
{
    if (type == TYPE_F32)
        return v16f_load((const float *)tile + LANES * column);
    const uint16_t *halves = (const uint16_t *)tile + LANES * column;
    return type == TYPE_BF16 ? v16f_load_bf16(halves) : v16f_load_f16(halves);
}

/* Float columns, one chain of fmas through a segment. */
ALWAYS_INLINE void chain(const struct weight *weight, const uint8_t *tile, const float *x,
                         float *out, const int type, const int rows)
{
    const size_t width = (size_t)weight->num_cols, block = (size_t)weight->block;
    const size_t step = block * (((width + block - 1) / block + NUM_SEGMENTS - 1) / NUM_SEGMENTS);
    v16f total[GROUP];
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
        total[r] = v16f_set1(0.0f);
    for (size_t first = 0; first < width; first += step) {
        const size_t last = width - first < step ? width : first + step;
        v16f acc[GROUP];
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++)
            acc[r] = v16f_set1(0.0f);
        for (size_t column = first; column < last; column++) {
            v16f w = load_column(tile, column, type);
#pragma GCC unroll 8
            for (int r = 0; r < rows; r++)
                acc[r] = v16f_fma(w, v16f_set1(x[r * width + column]), acc[r]);
        }
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++)
            total[r] = v16f_add(total[r], acc[r]);
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
        v16f_store(out + LANES * r, total[r]);
}

static void chain_panel(const struct weight *weight, const uint8_t *tile, const float *x,
                        int num_rows, float *out)
{
    const size_t width = (size_t)weight->num_cols;
#define CHAIN(type, rows) chain(weight, tile, x + row * width, out + LANES * row, type, rows)
#define CHAIN_F32(rows) CHAIN(TYPE_F32, rows)
#define CHAIN_F16(rows) CHAIN(TYPE_F16, rows)
#define CHAIN_BF16(rows) CHAIN(TYPE_BF16, rows)
    for (size_t row = 0; row < (size_t)num_rows; row += GROUP) {
        const int left = num_rows - (int)row;
        if (weight->type == TYPE_F32)
            WITH_GROUP(left, CHAIN_F32)
        else if (weight->type == TYPE_F16)
            WITH_GROUP(left, CHAIN_F16)
        else
            WITH_GROUP(left, CHAIN_BF16)
    }
}

void KERNEL(tile_times)(const struct weight *weight, const struct acts *acts, int tile, int panel,
                        float *out)
{
    const uint8_t *at = weight->tiles + (size_t)tile * weight->tile_bytes;
    const int num_rows = panel_rows(acts, panel);
    if (weight->form == FORM_F32)
        chain_panel(weight, at, acts->x + (size_t)panel * PANEL * (size_t)acts->width, num_rows, out);
    else {
        struct panel x = panel_at(&acts->first, acts, panel);
        times_of[weight->type](weight, at, &x, out);
    }
    if (weight->form == FORM_INT8X2) {
        struct panel x = panel_at(&acts->second, acts, panel);
        float more[PANEL * LANES];
        times_of[weight->type](weight, at, &x, more);
        for (int i = 0; i < num_rows * LANES; i += LANES)
            v16f_store(out + i, v16f_add(v16f_load(out + i), v16f_load(more + i)));
    }
    if (weight->bias) {
        const v16f bias = v16f_load_n(weight->bias + tile * TILE_ROWS, tile_rows(weight, tile));
        for (int i = 0; i < num_rows * LANES; i += LANES)
            v16f_store(out + i, v16f_add(v16f_load(out + i), bias));
    }
}
