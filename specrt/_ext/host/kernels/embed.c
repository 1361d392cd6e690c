/* embed: a part is one row, dequantised and scaled; NaN where the id is no row. */
#include "decode.h"
#include "rows.h"

static const struct row_type {
    int block, num_bytes, sub, offset, minimum, has_subs, is_bf16;
    float factor;
    decode_fn *decode;
} row_types[NUM_TYPES] = {
#define X(TYPE, name, block, bytes, sub, offset, minimum, low, high, scales, factor, values) \
    [TYPE_##TYPE] = {block, bytes, sub, offset, minimum, block == 256, scales == SCALES_BF16, \
                     factor, decode_##name},
    QUANT_TYPES(X)
#undef X
};

static void read_block(const struct row_type *type, const uint8_t *raw, int n, int flush,
                       float *out)
{
    uint8_t codes[256];
    struct scales_of_block s;
    type->decode(raw, codes, &s);
    if (flush && type->is_bf16 && s.d < MXFP4_SMALLEST)
        s.d = 0;
    const float d = type->factor
                    * (type->is_bf16 ? f32_from_bits((uint32_t)s.d << 16) : f32_from_f16(s.d));
    for (int first = 0, sub = 0; first < n; first += type->sub, sub++) {
        const float scale = type->has_subs ? d * (float)s.sc[sub] : d;
        const int end = first + type->sub < n ? first + type->sub : n;
        for (int i = first; i < end; i++)
            out[i] = scale * (float)(codes[i] - type->offset);
        if (type->minimum) {
            const float dmin = f32_from_f16(s.dmin);
            const float minimum = type->has_subs ? dmin * (float)s.m[sub] : dmin;
            for (int i = first; i < end; i++)
                out[i] += minimum;
        }
    }
}

void KERNEL(read_row)(const struct matrix *matrix, int row, int first, int count, int flush,
                      float *out)
{
    const uint8_t *raw = matrix->raw + (size_t)row * matrix->row_bytes;
    const struct row_type *type = &row_types[matrix->type];
    if (matrix->type == TYPE_F32) {
        memcpy(out, raw + 4 * (size_t)first, 4 * (size_t)count);
    } else if (matrix->type == TYPE_F16 || matrix->type == TYPE_BF16) {
        const uint16_t *p = (const uint16_t *)raw + first;
        for (int i = 0; i < count; i += LANES) {
            int n = count - i < LANES ? count - i : LANES;
            v16f x = matrix->type == TYPE_F16 ? v16f_load_f16_n(p + i, n) : v16f_load_bf16_n(p + i, n);
            v16f_store_n(out + i, x, n);
        }
    } else
        for (int i = 0; i < count; i += type->block) {
            int n = count - i < type->block ? count - i : type->block;
            read_block(type, raw + (first + i) / type->block * type->num_bytes, n, flush, out + i);
        }
}

void KERNEL(embedded)(const struct matrix *matrix, int token, float scale, float *out)
{
    const int valid = token >= 0 && token < matrix->num_rows;
    if (valid)
        KERNEL(read_row)(matrix, token, 0, matrix->num_cols, 0, out);
    for (int i = 0; i < matrix->num_cols; i++)
        out[i] = valid ? out[i] * scale : NAN;
}

void KERNEL(embed)(const void *pointer, int row, void *scratch)
{
    const struct embed_args *args = pointer;
    float *out = args->out + (size_t)row * (size_t)args->weight.num_cols;
    (void)scratch;
    KERNEL(embedded)(&args->weight, args->tokens[row], args->scale, out);
}
