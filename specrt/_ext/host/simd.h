/* Sixteen lanes of float or int32, for kernels that are compiled once per instruction set.
 *
 * A v16f is one zmm register (AVX-512), two ymm registers (AVX2) or an array (portable C). Every
 * primitive gives the same bits in all three forms, NaN payloads excepted:
 *   - fma is one rounding, mul, add, sub and div are IEEE, max(a, b) is a > b ? a : b and min(a, b)
 *     is a < b ? a : b (so b where either is NaN),
 *   - reductions add lanes j and j + 8, then j + 4, j + 2, j + 1, the lower lane as a,
 *   - exp and tanh are the polynomials below, the same for every lane; a tail is a masked load.
 * The floating-point environment is the default one: round to nearest even, no FTZ, no DAZ.
 */
#ifndef SPECRT_SIMD_H
#define SPECRT_SIMD_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define LANES 16
#define ALWAYS_INLINE static inline __attribute__((always_inline))

#if defined(__AVX512F__)
#include "simd_avx512.h"
#elif defined(__AVX2__)
#include "simd_avx2.h"
#else
#include "simd_portable.h"
#endif

static inline float f32_from_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

static inline uint32_t bits_from_f32(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return bits;
}

/* The first n of 16 f16 (bf16) values as floats, zeros behind them. */
static inline v16f v16f_load_f16_n(const uint16_t *p, int n)
{
    uint16_t padded[LANES] = {0};
    memcpy(padded, p, 2 * (size_t)n);
    return v16f_load_f16(padded);
}

static inline v16f v16f_load_bf16_n(const uint16_t *p, int n)
{
    uint16_t padded[LANES] = {0};
    memcpy(padded, p, 2 * (size_t)n);
    return v16f_load_bf16(padded);
}

static inline void v16f_store_f16_n(uint16_t *p, v16f x, int n)
{
    uint16_t padded[LANES];
    v16f_store_f16(padded, x);
    memcpy(p, padded, 2 * (size_t)n);
}

/* exp(t) for t from -88 to 89, NaN for NaN: t = n ln 2 + r with |r| <= ln 2 / 2,
 * exp(r) = 1 + r (1 + r P(r)), n added to the exponent. */
static inline v16f simd_exp(v16f t)
{
    v16i n = v16f_to_int(v16f_mul(t, v16f_set1(0x1.715476p+0f)));
    v16f nf = v16i_to_float(n);
    v16f r = v16f_fma(nf, v16f_set1(-0x1.62e400p-1f), t);
    r = v16f_fma(nf, v16f_set1(-0x1.7f7d1cp-20f), r);
    v16f p = v16f_set1(1.9875691500e-4f);
    p = v16f_fma(p, r, v16f_set1(1.3981999507e-3f));
    p = v16f_fma(p, r, v16f_set1(8.3334519073e-3f));
    p = v16f_fma(p, r, v16f_set1(4.1665795894e-2f));
    p = v16f_fma(p, r, v16f_set1(1.6666665459e-1f));
    p = v16f_fma(p, r, v16f_set1(5.0000001201e-1f));
    p = v16f_fma(p, r, v16f_set1(1.0f));
    return v16f_add_exponent(v16f_fma(p, r, v16f_set1(1.0f)), n);
}

/* exp(x), within 1.1 ulp: 0 below -87, inf above 88.72283, exactly 1 at 0, NaN for NaN. */
static inline v16f v16f_exp(v16f x)
{
    v16f t = v16f_min(v16f_max(x, v16f_set1(-88.0f)), v16f_set1(89.0f));
    v16f p = simd_exp(t);
    p = v16f_select(v16f_lt(x, v16f_set1(-87.0f)), v16f_set1(0.0f), p);
    p = v16f_select(v16f_lt(v16f_set1(88.72283f), x), v16f_set1(INFINITY), p);
    return v16f_select(v16f_isnan(x), x, p);
}

/* The same for x <= 0 and NaN, which max lets pass as its second operand. */
static inline v16f v16f_exp_negative(v16f x)
{
    v16f p = simd_exp(v16f_max(v16f_set1(-88.0f), x));
    return v16f_select(v16f_lt(x, v16f_set1(-87.0f)), v16f_set1(0.0f), p);
}

/* tanh(x), within 2 ulp, odd: x + x z P(z) with z = x x below 0.625, else
 * 1 - 2 / (exp(2 |x|) + 1). */
static inline v16f v16f_tanh(v16f x)
{
    v16f a = v16f_abs(x);
    v16f z = v16f_mul(a, a);
    v16f p = v16f_set1(-5.70498872745e-3f);
    p = v16f_fma(p, z, v16f_set1(2.06390887954e-2f));
    p = v16f_fma(p, z, v16f_set1(-5.37397155531e-2f));
    p = v16f_fma(p, z, v16f_set1(1.33314422036e-1f));
    p = v16f_fma(p, z, v16f_set1(-3.33332819422e-1f));
    v16f small = v16f_fma(v16f_mul(p, z), a, a);
    v16f e = v16f_add(v16f_exp(v16f_add(a, a)), v16f_set1(1.0f));
    v16f large = v16f_sub(v16f_set1(1.0f), v16f_div(v16f_set1(2.0f), e));
    return v16f_copysign(v16f_select(v16f_lt(a, v16f_set1(0.625f)), small, large), x);
}

#endif
