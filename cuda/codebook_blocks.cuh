/* The weight types whose codes are looked up: see quant_blocks.cuh. */
#include "quant_layout.cuh"
#include "quant_tables.cuh"

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
