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
#include "codebook_blocks.cuh"
#include "quant_layout.cuh"

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
    static constexpr int dot_unroll = 1;
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
    /* The i-th scale, or minimum if which is 1. */
    static __device__ __forceinline__ int six(const char *b, int row, int i, int which)
    {
        const int shift = 8 * (i & 3);
        const unsigned own = vector_word(b, 0, row, 1 + which) >> shift;
        const unsigned four = vector_word(b, 0, row, 3) >> shift >> 4 * which & 15;
        return i < 4 ? own & 63 : four | (own >> 2 & 48);
    }
    static __device__ __forceinline__ float scale(const char *b, int row, int i)
    {
        return times(low_half(vector_word(b, 0, row, 0)), six(b, row, i, 0));
    }
    static __device__ __forceinline__ float minimum(const char *b, int row, int i)
    {
        return -times(high_half(vector_word(b, 0, row, 0)), six(b, row, i, 1));
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
    static constexpr int dot_unroll = 1;
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
