/* What the machine can do at most, in the same parts and threads as the ops: read memory once, and
 * multiply and add what lies in registers.
 *
 *   read_memory      sums a part's 8-byte words, eight chains at a time
 *   multiply_ints    a step: uint8 by int8 into int32; 64, 32 or 16 products a register
 *   multiply_floats  a step: float by float onto a float; 16, 8 or 4 a register
 *
 * The portable form has no fma: it multiplies, then adds.
 */
#include "machine_speed.h"

#include <string.h>

#if defined(__AVX512F__)
#include <immintrin.h>
#define BYTES 64
#elif defined(__AVX2__)
#include <immintrin.h>
#define BYTES 32
#else
#define BYTES 16
#endif

typedef float floats __attribute__((vector_size(BYTES)));
typedef int32_t ints __attribute__((vector_size(BYTES)));

#define STREAMS 8

/* 32 bytes in every form: loads of 64 read 6 % less a second where they take two turns (Zen 4). */
typedef uint64_t words __attribute__((vector_size(32)));

void KERNEL(read_memory)(const void *pointer, int part, void *scratch)
{
    const struct read_memory_args *args = pointer;
    size_t start = (size_t)part * args->part_bytes, left = args->num_bytes - start;
    const words *p = (const words *)(args->memory + start);
    const words *end = p + (left < args->part_bytes ? left : args->part_bytes) / sizeof *p;
    words sums[STREAMS] = {0};
    (void)scratch;
    for (; p < end; p += STREAMS)
        for (int i = 0; i < STREAMS; i++)
            sums[i] += p[i];
    for (int i = 1; i < STREAMS; i++)
        sums[0] += sums[i];
    args->sums[part] = sums[0][0] + sums[0][1] + sums[0][2] + sums[0][3];
}

/* Keeps a register's value from the compiler, which would multiply once and add it again. */
#if defined(__AVX512F__)
#define HIDE(x) __asm__ volatile("" : "+v"(x))
#elif HAVE_X86
#define HIDE(x) __asm__ volatile("" : "+x"(x))
#else
#define HIDE(x) __asm__ volatile("" : "+w"(x))
#endif

static inline ints multiply_int8(ints sum, ints x, ints y)
{
#if defined(__AVX512F__)
    return (ints)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)x, (__m512i)y);
#elif defined(__AVX2__)
    __m256i pairs = _mm256_maddubs_epi16((__m256i)x, (__m256i)y);
    return sum + (ints)_mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
#else
    typedef int16_t shorts __attribute__((vector_size(BYTES)));
    shorts even = ((shorts)x & 255) * (((shorts)y << 8) >> 8);
    shorts odd = (shorts)((shorts)x >> 8 & 255) * ((shorts)y >> 8);
    return sum + (((ints)even << 16) >> 16) + ((ints)even >> 16) + (((ints)odd << 16) >> 16) +
           ((ints)odd >> 16);
#endif
}

static inline floats multiply_float(floats sum, floats x, floats y)
{
#if defined(__AVX512F__)
    return (floats)_mm512_fmadd_ps((__m512)x, (__m512)y, (__m512)sum);
#elif defined(__AVX2__)
    return (floats)_mm256_fmadd_ps((__m256)x, (__m256)y, (__m256)sum);
#else
    return x * y + sum;
#endif
}

#define MULTIPLY(name, type, multiply, first)                                           \
    void KERNEL(name)(const void *pointer, int part, void *scratch)                     \
    {                                                                                   \
        const struct multiply_args *args = pointer;                                     \
        type sums[MULTIPLY_CHAINS] = {0}, x = (type){0} + first, y = (type){0} + first; \
        (void)scratch;                                                                  \
        for (int64_t step = 0; step < args->steps; step++)                              \
            for (int i = 0; i < MULTIPLY_CHAINS; i++) {                                 \
                HIDE(x);                                                                \
                sums[i] = multiply(sums[i], x, y);                                      \
            }                                                                           \
        for (int i = 1; i < MULTIPLY_CHAINS; i++)                                       \
            sums[0] += sums[i];                                                         \
        memcpy(&args->ends[part], &sums[0], sizeof(uint32_t));                          \
    }

MULTIPLY(multiply_ints, ints, multiply_int8, 0x01010101)
MULTIPLY(multiply_floats, floats, multiply_float, 0.5f)
