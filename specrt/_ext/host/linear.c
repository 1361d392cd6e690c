#include "linear.h"

static size_t whole_lines(size_t bytes) { return (bytes + 63) / 64 * 64; }

void weight_layout(struct weight *weight)
{
    static const struct { int block, sub, minimum, bits; enum scales scales; } types[NUM_TYPES] = {
#define X(TYPE, name, block, bytes, sub, offset, minimum, low, high, scales, ...) \
    [TYPE_##TYPE] = {block, sub, minimum, low + high, scales},
        QUANT_TYPES(X)
#undef X
    };
    const int type = weight->type, block = types[type].block;
    const size_t columns = (size_t)weight->num_cols, fields = types[type].minimum ? 2 : 1;
    weight->block = block ? block : FLOAT_BLOCK;
    if (weight->form == FORM_F32) {
        if (block)
            weight->type = TYPE_F32;
        weight->tile_bytes = whole_lines((weight->type == TYPE_F32 ? 4 : 2) * TILE_ROWS * columns);
        return;
    }
    /* Of a row: bytes of all blocks, then of all sub-blocks, then of the codes. */
    size_t bytes = columns / (size_t)block * 2 * fields;
    if (types[type].scales == SCALES_BYTES)
        bytes += columns / (size_t)types[type].sub * fields;
    if (types[type].scales == SCALES_NIBBLES)
        bytes += columns / (size_t)types[type].sub;
    bytes += columns / 8 * (size_t)types[type].bits;
    weight->tile_bytes = whole_lines(TILE_ROWS * bytes);
}
