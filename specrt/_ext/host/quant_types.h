/* The quantised weight types: how their files' blocks are, and how tiles hold them.
 *
 * A tile is sixteen weight rows, a lane each, block of columns by block, so that it is read as one
 * stream. A block is d [16], dmin [16] if there is a minimum, then for every 32 columns their codes
 * and the scales of their sub-blocks, of each int8 sc [16], uint8 m [16] if there is a minimum.
 *
 * A code vector is 64 bytes, of sixteen rows four adjacent columns each. Thirty-two columns are eight
 * such groups; their codes of low + high bits lie in low vectors, where a byte holds the low bits of
 * 8 / low groups, lowest first, and high vectors likewise. Codes are
 *   - the integers of the file without sign, the offset added, or
 *   - places in a table of at most sixteen values, which are such integers (the types with offset 128).
 * Scales:
 *   SCALES_F16, SCALES_BF16: d and dmin alone, as f16 and as bf16,
 *   SCALES_BYTES: d and dmin as f16, and those of sub-blocks,
 *   SCALES_NIBBLES: the same with sc and m in one byte, sc low.
 * A weight is (factor d) sc (code - offset) + dmin m; products of scales are exact.
 */
#ifndef SPECRT_QUANT_TYPES_H
#define SPECRT_QUANT_TYPES_H

enum scales { SCALES_F16, SCALES_BF16, SCALES_BYTES, SCALES_NIBBLES };

/* Type, name, columns and bytes of a block, columns of a sub-block, offset, whether there is a
 * minimum, low and high bits, scales, factor, and the table of values. */
#define QUANT_TYPES(X) \
    X(Q4_0, q4_0, 32, 18, 32, 8, 0, 4, 0, SCALES_F16, 1, NULL) \
    X(Q4_1, q4_1, 32, 20, 32, 0, 1, 4, 0, SCALES_F16, 1, NULL) \
    X(Q5_0, q5_0, 32, 22, 32, 16, 0, 4, 1, SCALES_F16, 1, NULL) \
    X(Q5_1, q5_1, 32, 24, 32, 0, 1, 4, 1, SCALES_F16, 1, NULL) \
    X(Q8_0, q8_0, 32, 34, 32, 128, 0, 8, 0, SCALES_F16, 1, NULL) \
    X(Q2_K, q2_k, 256, 84, 16, 0, 1, 2, 0, SCALES_NIBBLES, 1, NULL) \
    X(Q3_K, q3_k, 256, 110, 16, 4, 0, 2, 1, SCALES_BYTES, 1, NULL) \
    X(Q4_K, q4_k, 256, 144, 32, 0, 1, 4, 0, SCALES_BYTES, 1, NULL) \
    X(Q5_K, q5_k, 256, 176, 32, 0, 1, 4, 1, SCALES_BYTES, 1, NULL) \
    X(Q6_K, q6_k, 256, 210, 16, 32, 0, 4, 2, SCALES_BYTES, 1, NULL) \
    X(IQ4_NL, iq4_nl, 32, 18, 32, 128, 0, 4, 0, SCALES_F16, 1, iq4_values) \
    X(IQ4_XS, iq4_xs, 256, 136, 32, 128, 0, 4, 0, SCALES_BYTES, 1, iq4_values) \
    X(IQ2_XXS, iq2_xxs, 256, 66, 32, 128, 0, 2, 1, SCALES_BYTES, 0.125f, iq2_values) \
    X(IQ2_XS, iq2_xs, 256, 74, 16, 128, 0, 2, 1, SCALES_BYTES, 0.125f, iq2_values) \
    X(IQ2_S, iq2_s, 256, 82, 16, 128, 0, 2, 1, SCALES_BYTES, 0.125f, iq2_values) \
    X(IQ3_XXS, iq3_xxs, 256, 98, 32, 128, 0, 4, 0, SCALES_BYTES, 0.25f, iq3_xxs_values) \
    X(IQ3_S, iq3_s, 256, 110, 32, 128, 0, 4, 0, SCALES_BYTES, 1, iq3_s_values) \
    X(MXFP4, mxfp4, 32, 17, 32, 128, 0, 4, 0, SCALES_BF16, 1, mxfp4_values)

#endif
