#include "linear.h"

static size_t whole_lines(size_t bytes) { return (bytes + 63) / 64 * 64; }

/* Bytes of the scales of a block of sixteen rows. */
static size_t scale_bytes(enum scales scales, int block, int sub, int minimum)
{
    size_t halves = 2 * TILE_ROWS * (minimum ? 2 : 1), subs = (size_t)(block / sub);
    if (scales == SCALES_BYTES)
        return halves + subs * TILE_ROWS * (minimum ? 2 : 1);
    return scales == SCALES_NIBBLES ? halves + subs * TILE_ROWS : halves;
}

void weight_layout(struct weight *weight)
{
    static const struct { int block, sub, minimum, bits; enum scales scales; } types[NUM_TYPES] = {
#define X(TYPE, name, block, bytes, sub, offset, minimum, low, high, scales, ...) \
    [TYPE_##TYPE] = {block, sub, minimum, low + high, scales},
        QUANT_TYPES(X)
#undef X
    };
    const int columns = weight->num_cols, block = types[weight->type].block;
    weight->block = block ? block : FLOAT_BLOCK;
    if (weight->form == FORM_F32) {
        if (block)
            weight->type = TYPE_F32;
        size_t size = weight->type == TYPE_F32 ? 4 : 2;
        weight->tile_bytes = weight->scales_at = whole_lines(size * TILE_ROWS * (size_t)columns);
        return;
    }
    const size_t bits = (size_t)(types[weight->type].bits), blocks = (size_t)(columns / block);
    weight->scales_at = TILE_ROWS * bits * (size_t)columns / 8;
    weight->tile_bytes = whole_lines(weight->scales_at
                                     + blocks * scale_bytes(types[weight->type].scales, block,
                                                            types[weight->type].sub,
                                                            types[weight->type].minimum));
}
