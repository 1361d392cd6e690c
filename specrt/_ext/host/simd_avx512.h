/* The primitives of simd.h on AVX-512 (F, BW, DQ, VL, VNNI). */
#include <immintrin.h>

typedef __m512 v16f;
typedef __m512i v16i;
typedef __mmask16 v16m;

/* So many sums of at most so many rows stay in registers, beside what they are made of. */
#define V16F_SUMS 24
#define V16F_ROWS 6

static inline v16f v16f_load(const float *p) { return _mm512_loadu_ps(p); }
static inline void v16f_store(float *p, v16f x) { _mm512_storeu_ps(p, x); }
static inline v16f v16f_set1(float x) { return _mm512_set1_ps(x); }
static inline v16i v16i_set1(int32_t x) { return _mm512_set1_epi32(x); }

/* Lanes 0 .. n-1 (n from 0 to 16): as a mask, loaded with zeros behind them, stored alone. */
static inline v16m v16m_first(int n) { return (__mmask16)((1u << n) - 1); }
static inline v16f v16f_load_n(const float *p, int n)
{
    return _mm512_maskz_loadu_ps(v16m_first(n), p);
}
static inline void v16f_store_n(float *p, v16f x, int n)
{
    _mm512_mask_storeu_ps(p, v16m_first(n), x);
}

static inline v16f v16f_add(v16f a, v16f b) { return _mm512_add_ps(a, b); }
static inline v16f v16f_sub(v16f a, v16f b) { return _mm512_sub_ps(a, b); }
static inline v16f v16f_mul(v16f a, v16f b) { return _mm512_mul_ps(a, b); }
static inline v16f v16f_div(v16f a, v16f b) { return _mm512_div_ps(a, b); }
static inline v16f v16f_max(v16f a, v16f b) { return _mm512_max_ps(a, b); }
static inline v16f v16f_min(v16f a, v16f b) { return _mm512_min_ps(a, b); }
static inline v16f v16f_fma(v16f a, v16f b, v16f c) { return _mm512_fmadd_ps(a, b, c); }
static inline v16f v16f_abs(v16f a) { return _mm512_abs_ps(a); }
static inline v16f v16f_copysign(v16f a, v16f sign)
{
    const __m512 bit = _mm512_set1_ps(-0.0f);
    return _mm512_or_ps(_mm512_andnot_ps(bit, a), _mm512_and_ps(bit, sign));
}

static inline v16i v16i_max(v16i a, v16i b) { return _mm512_max_epi32(a, b); }

static inline v16f v16i_to_float(v16i a) { return _mm512_cvtepi32_ps(a); }
/* Rounded to nearest even; the caller keeps |a| below 2^31. */
static inline v16i v16f_to_int(v16f a) { return _mm512_cvtps_epi32(a); }
static inline v16i v16f_bits(v16f a) { return _mm512_castps_si512(a); }
static inline v16f v16f_add_exponent(v16f a, v16i n)
{
    return _mm512_castsi512_ps(_mm512_add_epi32(v16f_bits(a), _mm512_slli_epi32(n, 23)));
}

static inline v16m v16f_lt(v16f a, v16f b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
static inline v16m v16f_isnan(v16f a) { return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q); }
/* m ? a : b, lane by lane. */
static inline v16f v16f_select(v16m m, v16f a, v16f b) { return _mm512_mask_blend_ps(m, b, a); }

static inline float f32_from_f16(uint16_t h) { return _cvtsh_ss(h); }
static inline v16f v16f_load_f16(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}
static inline v16f v16f_load_bf16(const uint16_t *p)
{
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}
static inline void v16f_store_f16(uint16_t *p, v16f x)
{
    __m256i h = _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm256_storeu_si256((__m256i *)p, h);
}
static inline v16i v16i_load_i8(const int8_t *p)
{
    return _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p));
}
/* Lane i is table[index[i]], from 0 to 15. */
static inline v16f v16f_lookup(v16f table, v16i index)
{
    return _mm512_permutexvar_ps(index, table);
}
/* The low byte of each lane. */
static inline void v16i_store_i8(int8_t *p, v16i x)
{
    _mm_storeu_si128((__m128i *)p, _mm512_cvtepi32_epi8(x));
}

#define SIMD_TREE(op)                                                               \
    __m256 r8 = _mm256_##op##_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1)); \
    __m128 r4 = _mm_##op##_ps(_mm256_castps256_ps128(r8), _mm256_extractf128_ps(r8, 1));   \
    __m128 r2 = _mm_##op##_ps(r4, _mm_movehl_ps(r4, r4));                           \
    return _mm_cvtss_f32(_mm_##op##_ss(r2, _mm_movehdup_ps(r2)))
static inline float v16f_reduce_add(v16f x) { SIMD_TREE(add); }
static inline float v16f_reduce_max(v16f x) { SIMD_TREE(max); }
#undef SIMD_TREE
static inline int32_t v16i_reduce_add(v16i x) { return _mm512_reduce_add_epi32(x); }
static inline int32_t v16i_reduce_max(v16i x) { return _mm512_reduce_max_epi32(x); }

/* Sixty-four bytes: of sixteen lanes four each. */
typedef __m512i v64;
static inline v64 v64_load(const uint8_t *p) { return _mm512_loadu_si512(p); }
static inline v64 v64_set16(const uint8_t *p) /* the same 16 bytes four times */
{
    return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)p));
}
/* (byte >> shift) & mask, where mask has no more than 8 - shift bits. */
static inline v64 v64_bits(v64 x, int shift, int mask)
{
    return _mm512_and_si512(_mm512_srli_epi16(x, (unsigned)shift), _mm512_set1_epi8((char)mask));
}
/* byte | high << shift, where high has no more than 8 - shift bits. */
static inline v64 v64_with_high(v64 x, v64 high, int shift)
{
    return _mm512_or_si512(x, _mm512_slli_epi16(high, (unsigned)shift));
}
/* table[byte] for bytes below 16; the table is a v64_set16. */
static inline v64 v64_lookup(v64 table, v64 x) { return _mm512_shuffle_epi8(table, x); }

/* acc[i] += sum over c < 4 of (w[4 i + c] - DOT_WIDE_OFFSET) * x[c], x being four bytes in an int32;
 * v16i_dot4 is for bytes below 128, and has no offset. */
#define DOT_WIDE_OFFSET 0
static inline v16i v16i_dot4_wide(v16i acc, v64 w, int32_t x)
{
    return _mm512_dpbusd_epi32(acc, w, _mm512_set1_epi32(x));
}
static inline v16i v16i_dot4(v16i acc, v64 w, int32_t x) { return v16i_dot4_wide(acc, w, x); }

static inline v16i v16i_add(v16i a, v16i b) { return _mm512_add_epi32(a, b); }
static inline v16i v16i_mul(v16i a, v16i b) { return _mm512_mullo_epi32(a, b); }
/* Sixteen bytes without sign, (byte >> shift) & mask. */
static inline v16i v16i_load_bits(const uint8_t *p, int shift, int mask)
{
    v16i x = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p));
    return _mm512_and_si512(_mm512_srli_epi32(x, (unsigned)shift), _mm512_set1_epi32(mask));
}

/* The dword transpose: 16 bytes of each of 16 rows to out[c][row][4 bytes], c < 4. */
static inline __m512i simd_rows(const char *p, size_t stride)
{
    __m128i a = _mm_loadu_si128((const __m128i *)p);
    __m128i b = _mm_loadu_si128((const __m128i *)(p + 4 * stride));
    __m128i c = _mm_loadu_si128((const __m128i *)(p + 8 * stride));
    __m128i d = _mm_loadu_si128((const __m128i *)(p + 12 * stride));
    __m256i low = _mm256_inserti128_si256(_mm256_castsi128_si256(a), b, 1);
    __m256i high = _mm256_inserti128_si256(_mm256_castsi128_si256(c), d, 1);
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}
static inline void transpose_16x4(const void *rows, size_t stride, void *out)
{
    const char *p = rows;
    __m512i r0 = simd_rows(p, stride), r1 = simd_rows(p + stride, stride);
    __m512i r2 = simd_rows(p + 2 * stride, stride), r3 = simd_rows(p + 3 * stride, stride);
    __m512i a = _mm512_unpacklo_epi32(r0, r1), b = _mm512_unpackhi_epi32(r0, r1);
    __m512i c = _mm512_unpacklo_epi32(r2, r3), d = _mm512_unpackhi_epi32(r2, r3);
    _mm512_storeu_si512((char *)out, _mm512_unpacklo_epi64(a, c));
    _mm512_storeu_si512((char *)out + 64, _mm512_unpackhi_epi64(a, c));
    _mm512_storeu_si512((char *)out + 128, _mm512_unpacklo_epi64(b, d));
    _mm512_storeu_si512((char *)out + 192, _mm512_unpackhi_epi64(b, d));
}

/* Sixteen bytes below 16 become table[byte]. */
static inline void lookup_16(const uint8_t *table, uint8_t *bytes)
{
    __m128i values = _mm_loadu_si128((const __m128i *)table);
    __m128i index = _mm_loadu_si128((const __m128i *)bytes);
    _mm_storeu_si128((__m128i *)bytes, _mm_shuffle_epi8(values, index));
}

/* Lanes 0 and 1, 2 and 3, ... in each other's places. */
static inline v16f v16f_swap_pairs(v16f a)
{
    return _mm512_permute_ps(a, 0xb1);
}

/* The first and the second of 16 pairs. */
static inline void v16f_load_pairs(const float *p, v16f *first, v16f *second)
{
    const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
    __m512 low = _mm512_loadu_ps(p), high = _mm512_loadu_ps(p + 16);
    *first = _mm512_permutex2var_ps(low, even, high);
    *second = _mm512_permutex2var_ps(low, odd, high);
}

/* Sixteen whole numbers of 64 bits. */
typedef struct { __m512i lo, hi; } v16l;
static inline v16l v16l_add(v16l a, v16l b)
{
    return (v16l){_mm512_add_epi64(a.lo, b.lo), _mm512_add_epi64(a.hi, b.hi)};
}
/* Rounded to nearest even; the caller keeps a from 0 to 2^51. */
static inline v16l v16f_to_long(v16f a)
{
    return (v16l){_mm512_cvtps_epi64(_mm512_castps512_ps256(a)),
                  _mm512_cvtps_epi64(_mm512_extractf32x8_ps(a, 1))};
}
static inline void v16l_store(uint64_t *p, v16l a)
{
    _mm512_storeu_si512(p, a.lo);
    _mm512_storeu_si512(p + 8, a.hi);
}
static inline uint64_t v16l_reduce_add(v16l a)
{
    return (uint64_t)_mm512_reduce_add_epi64(_mm512_add_epi64(a.lo, a.hi));
}
/* Lane i as bit i. */
static inline uint32_t v16m_bits(v16m m) { return m; }
