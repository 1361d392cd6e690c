/* A tile of sixteen weight rows times T input rows: specrt/reference/linear.py says what it is.
 *
 * Segment by segment the tile is decoded once, into the form that the dots read (column groups of
 * four bytes, or single floats, of sixteen rows side by side), then every input row passes over it
 * with its accumulator in a register. So decoding costs the same for one input row as for 512, and
 * a row's additions do not depend on how many there are.
 */
#include "decode.h"
#include "tile.h"

#define FLOAT_BLOCK 32 /* columns that are a block of float weights; the last may be short */

#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* The most input rows that pass together; registers decide, the result does not depend on it. */
#if defined(__AVX512F__)
#define GROUP 8
#elif defined(__AVX2__)
#define GROUP 2
#else
#define GROUP 1
#endif

struct tile {
    const struct weight *weight;
    int first_row;
    float *totals[2];       /* [T][16]; the second for int8x2 */
    float *scale, *minimum; /* [sub-blocks of a segment][16] */
    uint8_t *codes;         /* [columns / 4][16][4], or floats: [columns][16] */
    uint8_t *rows;          /* sixteen decoded rows, one behind the other */
};

static struct tile tile_at(const struct weight *weight, int tile, int num_rows, void *scratch)
{
    size_t columns = segment_columns(weight->num_cols);
    struct tile t = {.weight = weight, .first_row = tile * TILE_ROWS};
    t.totals[0] = scratch;
    t.totals[1] = t.totals[0] + (size_t)num_rows * LANES;
    t.scale = t.totals[1] + (size_t)num_rows * LANES;
    t.minimum = t.scale + columns;
    t.codes = (uint8_t *)(t.minimum + columns);
    t.rows = t.codes + 64 * columns;
    return t;
}

/* A lane's weight row; lanes behind the last row repeat it. */
static inline int lane_row(const struct tile *t, int lane)
{
    int row = t->first_row + lane;
    return row < t->weight->num_rows ? row : t->weight->num_rows - 1;
}

typedef void blocks_fn(const struct tile *t, int first, int count);

ALWAYS_INLINE void decode_blocks(const struct tile *t, int first, int count, decode_fn *decode,
                                 const int block, const int num_bytes, const int sub)
{
    const uint8_t *row[LANES];
    /* The next tile is fetched in bursts of about ten lines, in order of addresses: hardware does
     * not follow sixteen streams, and single lines come at half the speed. */
    const int burst = block == 32 ? 16 : 4;
    const uint8_t *next = t->weight->raw + (size_t)(t->first_row + LANES) * t->weight->row_bytes
                          + (size_t)first * (size_t)num_bytes * LANES;
    for (int lane = 0; lane < LANES; lane++)
        row[lane] = t->weight->raw + lane_row(t, lane) * t->weight->row_bytes
                    + (size_t)first * (size_t)num_bytes;
    for (int b = 0; b < count; b++) {
        int at = b * (block / sub) * LANES;
        for (int lane = 0; lane < LANES; lane++) {
            if (lane % burst == 0) {
                for (int line = 0; line < burst * num_bytes; line += 64)
                    __builtin_prefetch(next + line);
                next += burst * num_bytes;
            }
            decode(row[lane] + b * num_bytes, t->rows + lane * block, t->scale + at + lane,
                   t->minimum + at + lane);
        }
        uint8_t *codes = t->codes + b * block * LANES;
        for (int column = 0; column < block; column += 16)
            transpose_16x4(t->rows + column, (size_t)block, codes + column * LANES);
    }
}

#define X(TYPE, name, block, num_bytes, sub, offset, has_minimum)         \
    static void blocks_##name(const struct tile *t, int first, int count) \
    {                                                                     \
        decode_blocks(t, first, count, decode_##name, block, num_bytes, sub); \
    }
QUANT_TYPES(X)
#undef X

static const struct quant_type {
    int block, num_bytes, sub, offset, has_minimum;
    decode_fn *decode;
    blocks_fn *blocks;
} quant_types[NUM_TYPES] = { /* zeros for the float types */
#define X(TYPE, name, block, num_bytes, sub, offset, has_minimum) \
    [TYPE_##TYPE] = {block, num_bytes, sub, offset, has_minimum, decode_##name, blocks_##name},
    QUANT_TYPES(X)
#undef X
};

/* call(n) with the constant n = min(left, GROUP): each number of rows has a body of its own, since
 * rows that pass together cost little more than one, whose dots wait for each other. */
#define WITH_GROUP(left, call)           \
    switch ((left) < GROUP ? (left) : GROUP) { \
        GROUPS(call)                     \
    }
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

ALWAYS_INLINE void add_totals(float *totals, int row, const v16f *acc, const int group)
{
    for (int g = 0; g < group; g++) {
        float *total = totals + (row + g) * LANES;
        v16f_store(total, v16f_add(v16f_load(total), acc[g]));
    }
}

/* One segment for input rows row .. row + group: columns first .. first + count. */
ALWAYS_INLINE void dot_rows(const struct tile *t, const struct int8_rows *x, float *totals, int row,
                            int first, int count, int offset, const int sub, const int has_minimum,
                            const int group)
{
    size_t width = (size_t)t->weight->num_cols;
    const int8_t *q = x->q + row * width + first;
    const float *d = x->d + (row * width + first) / 32;
    const int32_t *sums = x->sums + (row * width + first) / 16;
    const uint8_t *codes = t->codes;
    const float *scale = t->scale, *minimum = t->minimum;
    v16f acc[GROUP];
#pragma GCC unroll 8
    for (int g = 0; g < group; g++)
        acc[g] = v16f_set1(0.0f);
    for (int column = 0; column < count; column += sub) {
        v16i dot[GROUP];
        float sum[GROUP];
#pragma GCC unroll 8
        for (int g = 0; g < group; g++) {
            const int32_t *s = sums + g * (width / 16) + column / 16;
            int32_t exact = sub == 16 ? s[0] : s[0] + s[1];
            sum[g] = (float)exact;
            dot[g] = v16i_set1(-offset * exact);
        }
#pragma GCC unroll 8
        for (int c = 0; c < sub; c += 4, codes += 64)
#pragma GCC unroll 8
            for (int g = 0; g < group; g++) {
                int32_t four;
                memcpy(&four, q + g * width + column + c, 4);
                dot[g] = v16i_dot4(dot[g], codes, four);
            }
        v16f lane_scale = v16f_load(scale), lane_minimum = v16f_load(minimum);
        scale += LANES;
        minimum += LANES;
#pragma GCC unroll 8
        for (int g = 0; g < group; g++) {
            float row_d = d[g * (width / 32) + column / 32];
            v16f factor = v16f_mul(lane_scale, v16f_set1(row_d));
            acc[g] = v16f_fma(factor, v16i_to_float(dot[g]), acc[g]);
            if (has_minimum)
                acc[g] = v16f_fma(lane_minimum, v16f_set1(row_d * sum[g]), acc[g]);
        }
    }
    add_totals(totals, row, acc, group);
}

ALWAYS_INLINE void dot_all(const struct tile *t, const struct int8_rows *x, float *totals,
                           int num_rows, int first, int count, int offset, const int sub,
                           const int has_minimum)
{
#define DOT_ROWS(group) dot_rows(t, x, totals, row, first, count, offset, sub, has_minimum, group)
    for (int row = 0; row < num_rows; row += GROUP)
        WITH_GROUP(num_rows - row, DOT_ROWS)
#undef DOT_ROWS
}

static void dot_segment(const struct tile *t, const struct quant_type *type,
                        const struct int8_rows *x, float *totals, int num_rows, int first,
                        int count)
{
    if (type->sub == 16 && type->has_minimum)
        dot_all(t, x, totals, num_rows, first, count, type->offset, 16, 1);
    else if (type->sub == 16)
        dot_all(t, x, totals, num_rows, first, count, type->offset, 16, 0);
    else if (type->has_minimum)
        dot_all(t, x, totals, num_rows, first, count, type->offset, 32, 1);
    else
        dot_all(t, x, totals, num_rows, first, count, type->offset, 32, 0);
}

static void int8_tile(const struct tile *t, const struct acts *acts)
{
    const struct quant_type *type = &quant_types[t->weight->type];
    int num_blocks = t->weight->num_cols / type->block;
    int step = (num_blocks + NUM_SEGMENTS - 1) / NUM_SEGMENTS;
    for (int first = 0; first < num_blocks; first += step) {
        int count = num_blocks - first < step ? num_blocks - first : step;
        int column = first * type->block, columns = count * type->block;
        type->blocks(t, first, count);
        dot_segment(t, type, &acts->first, t->totals[0], acts->num_rows, column, columns);
        if (t->weight->form == FORM_INT8X2)
            dot_segment(t, type, &acts->second, t->totals[1], acts->num_rows, column, columns);
    }
}

void KERNEL(read_floats)(const struct weight *weight, int row, int first, int count, float *out)
{
    const uint8_t *raw = weight->raw + row * weight->row_bytes;
    if (weight->type == TYPE_F32) {
        memcpy(out, raw + 4 * (size_t)first, 4 * (size_t)count);
    } else if (weight->type == TYPE_F16 || weight->type == TYPE_BF16) {
        const uint16_t *p = (const uint16_t *)raw + first;
        int f16 = weight->type == TYPE_F16, i = 0;
        for (; i + LANES <= count; i += LANES)
            v16f_store(out + i, f16 ? v16f_load_f16(p + i) : v16f_load_bf16(p + i));
        v16f tail = f16 ? v16f_load_f16_n(p + i, count - i) : v16f_load_bf16_n(p + i, count - i);
        v16f_store_n(out + i, tail, count - i);
    } else {
        const struct quant_type *type = &quant_types[weight->type];
        uint8_t codes[256];
        float scale[16 * LANES], minimum[16 * LANES];
        for (int c = first; c < first + count; c++) {
            if (c == first || c % type->block == 0)
                type->decode(raw + c / type->block * type->num_bytes, codes, scale, minimum);
            int at = c % type->block, sub = at / type->sub * LANES;
            float value = scale[sub] * (float)(codes[at] - type->offset);
            *out++ = type->has_minimum ? value + minimum[sub] : value;
        }
    }
}

ALWAYS_INLINE void chain_rows(const struct tile *t, const float *x, int row, int first, int count,
                              const int group)
{
    size_t width = (size_t)t->weight->num_cols;
    const float *values = (const float *)t->codes;
    v16f acc[GROUP];
    x += row * width + first;
#pragma GCC unroll 8
    for (int g = 0; g < group; g++)
        acc[g] = v16f_set1(0.0f);
    for (int column = 0; column < count; column++) {
        v16f w = v16f_load(values + column * LANES);
#pragma GCC unroll 8
        for (int g = 0; g < group; g++)
            acc[g] = v16f_fma(w, v16f_set1(x[g * width + column]), acc[g]);
    }
    add_totals(t->totals[0], row, acc, group);
}

static void float_tile(const struct tile *t, const struct acts *acts)
{
    const int num_cols = t->weight->num_cols, own = quant_types[t->weight->type].block;
    const int block = own ? own : FLOAT_BLOCK, num_blocks = (num_cols + block - 1) / block;
    const int step = block * ((num_blocks + NUM_SEGMENTS - 1) / NUM_SEGMENTS);
    for (int first = 0; first < num_cols; first += step) {
        int count = num_cols - first < step ? num_cols - first : step;
        for (int lane = 0; lane < LANES; lane++)
            KERNEL(read_floats)(t->weight, lane_row(t, lane), first, count,
                                (float *)t->rows + lane * step);
        for (int column = 0; column < count; column += 4) /* behind count: unused */
            transpose_16x4((float *)t->rows + column, 4 * (size_t)step, t->codes + 64 * column);
#define CHAIN_ROWS(group) chain_rows(t, acts->x, row, first, count, group)
        for (int row = 0; row < acts->num_rows; row += GROUP)
            WITH_GROUP(acts->num_rows - row, CHAIN_ROWS)
#undef CHAIN_ROWS
    }
}

float *KERNEL(linear_tile)(const struct weight *weight, const struct acts *acts, int tile,
                           void *scratch)
{
    struct tile t = tile_at(weight, tile, acts->num_rows, scratch);
    int second = weight->form == FORM_INT8X2, size = acts->num_rows * LANES;
    memset(t.totals[0], 0, 4 * (size_t)size * (second ? 2 : 1));
    if (weight->form == FORM_F32)
        float_tile(&t, acts);
    else
        int8_tile(&t, acts);
    v16f bias = v16f_set1(0.0f);
    if (weight->bias)
        bias = v16f_load_n(weight->bias + t.first_row, tile_rows(weight, tile));
    for (int i = 0; i < size; i += LANES) {
        v16f total = v16f_load(t.totals[0] + i);
        if (second)
            total = v16f_add(total, v16f_load(t.totals[1] + i));
        if (weight->bias)
            total = v16f_add(total, bias);
        v16f_store(t.totals[0] + i, total);
    }
    return t.totals[0];
}
