/* One struct per weight type: a block of sixteen rows to codes, scales and minima.
 *
 * Sixteen weight rows are a tile; specrt/kernels/weights.py lays out a block of them as whole
 * vectors, [vector][row][16 bytes], and behind these the fields that are shorter, [row][bytes] each.
 * b is where the block starts, in shared or in global memory. A weight of a quantised type is
 * scale * (code - offset) + minimum:
 *   word(b, row, group, j): four codes, columns 4 j .. 4 j + 3 of the group-th 32, signed bytes,
 *   scale(b, row, i), minimum(b, row, i): of the i-th sub-block of `sub` columns, exact.
 * A float type has four(b, row, j): columns 4 j .. 4 j + 3 of its 32.
 * Twin: specrt/reference/quant_blocks.py.
 */
#include "common.cuh"
#include "quant_tables.cuh"

#define TILE_ROWS 16

#define EACH_NIBBLE 0x0f0f0f0fu
#define EACH_BIT 0x01010101u

/* Word j of a row's vector. */
__device__ __forceinline__ unsigned vector_word(const char *b, int vector, int row, int j)
{
    return load(reinterpret_cast<const unsigned *>(b + 256 * vector + 16 * row + 4 * j));
}

__device__ __forceinline__ int byte_at(const char *p)
{
    return load(reinterpret_cast<const unsigned char *>(p));
}
__device__ __forceinline__ unsigned word_at(const char *p)
{
    return load(reinterpret_cast<const unsigned *>(p));
}
__device__ __forceinline__ float half_at(const char *p)
{
    return half_bits_to_float(load(reinterpret_cast<const unsigned short *>(p)));
}
__device__ __forceinline__ float low_half(unsigned word)
{
    return half_bits_to_float(static_cast<unsigned short>(word));
}
__device__ __forceinline__ float high_half(unsigned word)
{
    return half_bits_to_float(static_cast<unsigned short>(word >> 16));
}

/* a * i for an integer of few bits: exact. */
__device__ __forceinline__ float times(float a, int i) { return __fmul_rn(a, __int2float_rn(i)); }

/* Bits 0 .. 3 as bytes 0 or 1. */
__device__ __forceinline__ unsigned spread(unsigned bits)
{
    return (bits & 15) * 0x00204081u & EACH_BIT;
}

/* Types of 32 columns that hold nibbles: columns 0 .. 15 low, 16 .. 31 high. */
__device__ __forceinline__ unsigned nibbles(const char *b, int row, int j)
{
    return vector_word(b, 0, row, j & 3) >> (j & 4) & EACH_NIBBLE;
}

/* What most types have. */
template <int block_, int bytes_, int sub_, int offset_, bool has_minimum_> struct Layout {
    static constexpr int block = block_, bytes = bytes_; /* columns, and bytes of one row */
    static constexpr int sub = sub_, offset = offset_;
    static constexpr bool has_minimum = has_minimum_, is_float = false;
    static constexpr int unit_blocks = block < 64 ? 2 : 1; /* of at least 64 columns */
    static constexpr float smallest = 0.0f; /* smaller scales count as zero in a product */
    static __device__ __forceinline__ float minimum(const char *, int, int) { return 0.0f; }
};

struct Q4_0 : Layout<32, 18, 32, 8, false> {
    static __device__ __forceinline__ int word(const char *b, int row, int, int j)
    {
        return nibbles(b, row, j);
    }
    static __device__ __forceinline__ float scale(const char *b, int row, int)
    {
        return half_at(b + 256 + 2 * row);
    }
};

struct Q4_1 : Layout<32, 20, 32, 0, true> {
    static __device__ __forceinline__ int word(const char *b, int row, int, int j)
    {
        return nibbles(b, row, j);
    }
    static __device__ __forceinline__ float scale(const char *b, int row, int)
    {
        return low_half(word_at(b + 256 + 4 * row));
    }
    static __device__ __forceinline__ float minimum(const char *b, int row, int)
    {
        return high_half(word_at(b + 256 + 4 * row));
    }
};

struct Q5_0 : Layout<32, 22, 32, 16, false> {
    static __device__ __forceinline__ int word(const char *b, int row, int, int j)
    {
        return nibbles(b, row, j) | spread(word_at(b + 256 + 4 * row) >> 4 * j) << 4;
    }
    static __device__ __forceinline__ float scale(const char *b, int row, int)
    {
        return half_at(b + 320 + 2 * row);
    }
};

struct Q5_1 : Layout<32, 24, 32, 0, true> {
    static __device__ __forceinline__ int word(const char *b, int row, int, int j)
    {
        return nibbles(b, row, j) | spread(word_at(b + 256 + 8 * row + 4) >> 4 * j) << 4;
    }
    static __device__ __forceinline__ float scale(const char *b, int row, int)
    {
        return low_half(word_at(b + 256 + 8 * row));
    }
    static __device__ __forceinline__ float minimum(const char *b, int row, int)
    {
        return high_half(word_at(b + 256 + 8 * row));
    }
};

struct Q8_0 : Layout<32, 34, 32, 0, false> {
    static __device__ __forceinline__ int word(const char *b, int row, int, int j)
    {
        return vector_word(b, j / 4, row, j & 3);
    }
    static __device__ __forceinline__ float scale(const char *b, int row, int)
    {
        return half_at(b + 512 + 2 * row);
    }
};

struct Q2_K : Layout<256, 84, 16, 0, true> { /* scales; four vectors of codes; d and dmin */
    static __device__ __forceinline__ int word(const char *b, int row, int group, int j)
    {
        const unsigned w = vector_word(b, 1 + 2 * (group / 4) + j / 4, row, j & 3);
        return w >> 2 * (group % 4) & 0x03030303u;
    }
    static __device__ __forceinline__ float scale(const char *b, int row, int i)
    {
        return times(low_half(word_at(b + 1280 + 4 * row)), byte_at(b + 16 * row + i) & 15);
    }
    static __device__ __forceinline__ float minimum(const char *b, int row, int i)
    {
        return -times(high_half(word_at(b + 1280 + 4 * row)), byte_at(b + 16 * row + i) >> 4);
    }
};

struct Q3_K : Layout<256, 110, 16, 4, false> { /* high bits; four vectors of codes; scales; d */
    static __device__ __forceinline__ int word(const char *b, int row, int group, int j)
    {
        const unsigned low = vector_word(b, 2 + 2 * (group / 4) + j / 4, row, j & 3);
        const unsigned high = vector_word(b, j / 4, row, j & 3);
        return (low >> 2 * (group % 4) & 0x03030303u) | (high >> group & EACH_BIT) << 2;
    }
    static __device__ __forceinline__ float scale(const char *b, int row, int i)
    {
        const char *scales = b + 1536 + 12 * row;
        const int low = byte_at(scales + i % 8) >> i / 8 * 4 & 15;
        const int high = byte_at(scales + 8 + i % 4) >> i / 4 * 2 & 3;
        return times(half_at(b + 1728 + 2 * row), (low | high << 4) - 32);
    }
};

/* The first vector of Q4_K and Q5_K: d, dmin, and eight scales and minima of six bits. */
template <int bytes> struct KScales : Layout<256, bytes, 32, 0, true> {
    static __device__ __forceinline__ float scale(const char *b, int row, int i)
    {
        const char *s = b + 16 * row + 4 + i % 4;
        const int six = i < 4 ? byte_at(s) & 63 : (byte_at(s + 8) & 15) | (byte_at(s) >> 2 & 48);
        return times(half_at(b + 16 * row), six);
    }
    static __device__ __forceinline__ float minimum(const char *b, int row, int i)
    {
        const char *s = b + 16 * row + 8 + i % 4;
        const int six = i < 4 ? byte_at(s) & 63 : byte_at(s + 4) >> 4 | (byte_at(s) >> 2 & 48);
        return -times(half_at(b + 16 * row + 2), six);
    }
};

struct Q4_K : KScales<144> {
    static __device__ __forceinline__ int word(const char *b, int row, int group, int j)
    {
        const unsigned w = vector_word(b, 1 + group / 2 * 2 + j / 4, row, j & 3);
        return w >> 4 * (group % 2) & EACH_NIBBLE;
    }
};

struct Q5_K : KScales<176> { /* two vectors of fifth bits before the nibbles */
    static __device__ __forceinline__ int word(const char *b, int row, int group, int j)
    {
        const unsigned w = vector_word(b, 3 + group / 2 * 2 + j / 4, row, j & 3);
        const unsigned high = vector_word(b, 1 + j / 4, row, j & 3);
        return (w >> 4 * (group % 2) & EACH_NIBBLE) | (high >> group & EACH_BIT) << 4;
    }
};

struct Q6_K : Layout<256, 210, 16, 32, false> { /* eight vectors low, four high, scales; d */
    static __device__ __forceinline__ int word(const char *b, int row, int group, int j)
    {
        const int half = group / 4, part = group % 4;
        const unsigned low = vector_word(b, 4 * half + part % 2 * 2 + j / 4, row, j & 3);
        const unsigned high = vector_word(b, 8 + 2 * half + j / 4, row, j & 3);
        return (low >> part / 2 * 4 & EACH_NIBBLE) | (high >> 2 * part & 0x03030303u) << 4;
    }
    static __device__ __forceinline__ float scale(const char *b, int row, int i)
    {
        const int code = load(reinterpret_cast<const signed char *>(b + 3072 + 16 * row + i));
        return times(half_at(b + 3328 + 2 * row), code);
    }
};

/* Bytes of a table of sixteen, by the low or the high nibbles of a word. */
__device__ __forceinline__ unsigned table_word(const unsigned (&table)[4], unsigned w, bool high)
{
    const unsigned eighths = w & 0x77777777u, upper = (w & 0x88888888u) >> 1 | 0x32103210u;
    unsigned halves[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const unsigned a = __byte_perm(table[0], table[1], eighths >> 16 * i);
        const unsigned c = __byte_perm(table[2], table[3], eighths >> 16 * i);
        halves[i] = __byte_perm(a, c, upper >> 16 * i);
    }
    return __byte_perm(halves[0], halves[1], high ? 0x7531 : 0x6420);
}

__device__ __forceinline__ unsigned iq4_word(unsigned w, bool high)
{
    const unsigned values[4] = {0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u};
    return table_word(values, w, high);
}

struct IQ4_NL : Layout<32, 18, 32, 0, false> {
    static __device__ __forceinline__ int word(const char *b, int row, int, int j)
    {
        return iq4_word(vector_word(b, 0, row, j & 3), j / 4);
    }
    static __device__ __forceinline__ float scale(const char *b, int row, int)
    {
        return half_at(b + 256 + 2 * row);
    }
};

struct IQ4_XS : Layout<256, 136, 32, 0, false> { /* eight vectors; d, high and low scales */
    static __device__ __forceinline__ int word(const char *b, int row, int group, int j)
    {
        return iq4_word(vector_word(b, group, row, j & 3), j / 4);
    }
    static __device__ __forceinline__ float scale(const char *b, int row, int i)
    {
        const unsigned first = word_at(b + 2048 + 8 * row), low = word_at(b + 2048 + 8 * row + 4);
        const int six = (low >> 4 * i & 15) | (first >> 16 >> 2 * i & 3) << 4;
        return times(low_half(first), six - 32);
    }
};

struct MXFP4 : Layout<32, 17, 32, 0, false> {
    static constexpr float smallest = 0x1p-30f;
    static __device__ __forceinline__ int word(const char *b, int row, int, int j)
    {
        const unsigned values[4] = {0x03020100u, 0x0c080604u, 0xfdfeff00u, 0xf4f8fafcu};
        return table_word(values, vector_word(b, 0, row, j & 3), j / 4);
    }
    /* Half of 2^(e - 127), since the codes are doubled. */
    static __device__ __forceinline__ float scale(const char *b, int row, int)
    {
        const int e = byte_at(b + 256 + row);
        return __int_as_float(e < 2 ? 0x200000 << e : (e - 1) << 23);
    }
};

/* Four bytes of 1 .. 127, negated where one of bits 0 .. 3 is set. */
__device__ __forceinline__ unsigned with_signs(unsigned w, unsigned bits)
{
    const unsigned ones = spread(bits);
    return (w ^ ones * 255) + ones;
}

/* Seven sign bits as eight: the eighth makes their number even. */
__device__ __forceinline__ unsigned even_signs(unsigned bits)
{
    bits &= 127;
    return bits | (__popc(bits) & 1) << 7;
}

/* One half of a codebook entry of eight. */
__device__ __forceinline__ unsigned half_of(unsigned long long entry, int j)
{
    return static_cast<unsigned>(entry >> 32 * (j & 1));
}

/* d * (i + 1/2) * factor. */
__device__ __forceinline__ float half_step(float d, int i, float factor)
{
    return __fmul_rn(__fmul_rn(d, __fadd_rn(__int2float_rn(i), 0.5f)), factor);
}

struct IQ2_XXS : Layout<256, 66, 32, 0, false> { /* per 32: four indices, then signs and scale */
    static __device__ __forceinline__ int word(const char *b, int row, int group, int j)
    {
        const unsigned index = vector_word(b, group / 2, row, group % 2 * 2) >> 4 * (j & 6) & 255;
        const unsigned signs = vector_word(b, group / 2, row, group % 2 * 2 + 1) >> 7 * (j / 2);
        return with_signs(half_of(iq2_xxs_grid[index], j), even_signs(signs) >> 4 * (j & 1));
    }
    static __device__ __forceinline__ float scale(const char *b, int row, int i)
    {
        const unsigned w = vector_word(b, i / 2, row, i % 2 * 2 + 1);
        return half_step(half_at(b + 1024 + 2 * row), w >> 28, 0.25f);
    }
};

struct IQ2_XS : Layout<256, 74, 16, 0, false> { /* 9 bits index, 7 signs; scales; d */
    static __device__ __forceinline__ int word(const char *b, int row, int group, int j)
    {
        const unsigned q = vector_word(b, group / 2, row, group % 2 * 2 + j / 4) >> 8 * (j & 2);
        return with_signs(half_of(iq2_xs_grid[q & 511], j), even_signs(q >> 9) >> 4 * (j & 1));
    }
    static __device__ __forceinline__ float scale(const char *b, int row, int i)
    {
        const int code = byte_at(b + 1024 + 8 * row + i / 2) >> 4 * (i & 1) & 15;
        return half_step(half_at(b + 1152 + 2 * row), code, 0.25f);
    }
};

struct IQ2_S : Layout<256, 82, 16, 0, false> { /* indices, signs, high bits and scales; d */
    static __device__ __forceinline__ int word(const char *b, int row, int group, int j)
    {
        const int at = 16 * row + 4 * (group % 4) + j / 2, vector = 256 * (group / 4);
        const int high = byte_at(b + 1024 + 16 * row + group) >> (j & 6) & 3;
        const unsigned long long entry = iq2_s_grid[byte_at(b + vector + at) | high << 8];
        return with_signs(half_of(entry, j), byte_at(b + 512 + vector + at) >> 4 * (j & 1));
    }
    static __device__ __forceinline__ float scale(const char *b, int row, int i)
    {
        const int code = byte_at(b + 1024 + 16 * row + 8 + i / 2) >> 4 * (i & 1) & 15;
        return half_step(half_at(b + 1280 + 2 * row), code, 0.25f);
    }
};

struct IQ3_XXS : Layout<256, 98, 32, 0, false> { /* four vectors of indices, two of signs; d */
    static __device__ __forceinline__ int word(const char *b, int row, int group, int j)
    {
        const int index = byte_at(b + 256 * (group / 2) + 16 * row + group % 2 * 8 + j);
        const unsigned signs = vector_word(b, 4 + group / 4, row, group % 4) >> 7 * (j / 2);
        return with_signs(iq3_xxs_grid[index], even_signs(signs) >> 4 * (j & 1));
    }
    static __device__ __forceinline__ float scale(const char *b, int row, int i)
    {
        const unsigned w = vector_word(b, 4 + i / 4, row, i % 4);
        return half_step(half_at(b + 1536 + 2 * row), w >> 28, 0.5f);
    }
};

struct IQ3_S : Layout<256, 110, 32, 0, false> { /* indices, signs; high bits, scales, d */
    static __device__ __forceinline__ int word(const char *b, int row, int group, int j)
    {
        const int low = byte_at(b + 256 * (group / 2) + 16 * row + group % 2 * 8 + j);
        const int high = byte_at(b + 1536 + 8 * row + group) >> j & 1;
        const unsigned signs = vector_word(b, 4 + group / 4, row, group % 4) >> 4 * j;
        return with_signs(iq3_s_grid[low | high << 8], signs);
    }
    static __device__ __forceinline__ float scale(const char *b, int row, int i)
    {
        const int code = byte_at(b + 1664 + 4 * row + i / 2) >> 4 * (i & 1) & 15;
        return times(half_at(b + 1728 + 2 * row), 2 * code + 1);
    }
};

/* Float types: 32 columns are a block. */
template <int bytes_> struct FloatLayout : Layout<32, bytes_, 32, 0, false> {
    static constexpr bool is_float = true;
};

struct F32 : FloatLayout<128> {
    static __device__ __forceinline__ float4 four(const char *b, int row, int j)
    {
        return load(reinterpret_cast<const float4 *>(b + 256 * j + 16 * row));
    }
};

struct F16 : FloatLayout<64> {
    static __device__ __forceinline__ float4 four(const char *b, int row, int j)
    {
        const uint2 w = load(
            reinterpret_cast<const uint2 *>(b + 256 * (j / 2) + 16 * row + 8 * (j & 1)));
        return make_float4(low_half(w.x), high_half(w.x), low_half(w.y), high_half(w.y));
    }
};

struct BF16 : FloatLayout<64> {
    static __device__ __forceinline__ float of(unsigned bits)
    {
        return __int_as_float(static_cast<int>(bits));
    }
    static __device__ __forceinline__ float4 four(const char *b, int row, int j)
    {
        const uint2 w = load(
            reinterpret_cast<const uint2 *>(b + 256 * (j / 2) + 16 * row + 8 * (j & 1)));
        return make_float4(of(w.x << 16), of(w.x & 0xffff0000u), of(w.y << 16),
                           of(w.y & 0xffff0000u));
    }
};

/* A scale as products take it. */
template <class Type> __device__ __forceinline__ float product_scale(const char *b, int row, int i)
{
    const float scale = Type::scale(b, row, i);
    return Type::smallest > 0.0f && scale < Type::smallest ? 0.0f : scale;
}

/* Four weights of a quantised type: scale * code, rounded, then + minimum, rounded. */
template <class Type>
__device__ __forceinline__ float4 weights_of(int word, float scale, float minimum)
{
    float w[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int code = static_cast<signed char>(word >> 8 * i) - Type::offset;
        w[i] = times(scale, code);
        if (Type::has_minimum)
            w[i] = __fadd_rn(w[i], minimum);
    }
    return make_float4(w[0], w[1], w[2], w[3]);
}
