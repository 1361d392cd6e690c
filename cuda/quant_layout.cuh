/* How a block of sixteen rows is read, whatever its type: see quant_blocks.cuh. */
#include "common.cuh"

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
    static constexpr int dot_unroll = 8; /* of linear_dot's groups: all, if registers allow */
    static constexpr float smallest = 0.0f; /* smaller scales count as zero in a product */
    static __device__ __forceinline__ float minimum(const char *, int, int) { return 0.0f; }
};
