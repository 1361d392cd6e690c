/* The primitives of simd.h on AVX2, FMA and F16C: pairs of ymm registers. */
#include <immintrin.h>

typedef struct { __m256 lo, hi; } v16f;
typedef struct { __m256i lo, hi; } v16i;
typedef struct { __m256 lo, hi; } v16m;

#define SIMD_F(f, g) ((v16f){f, g})
#define SIMD_I(f, g) ((v16i){f, g})

/* So many sums of at most so many rows stay in registers, beside what they are made of. */
#define V16F_SUMS 6
#define V16F_ROWS 6

static const int32_t simd_first[32] = {-1, -1, -1, -1, -1, -1, -1, -1,
                                       -1, -1, -1, -1, -1, -1, -1, -1};

static inline v16f v16f_load(const float *p)
{
    return SIMD_F(_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8));
}
static inline void v16f_store(float *p, v16f x)
{
    _mm256_storeu_ps(p, x.lo);
    _mm256_storeu_ps(p + 8, x.hi);
}
static inline v16f v16f_set1(float x) { return SIMD_F(_mm256_set1_ps(x), _mm256_set1_ps(x)); }
static inline v16i v16i_set1(int32_t x)
{
    return SIMD_I(_mm256_set1_epi32(x), _mm256_set1_epi32(x));
}

/* Lanes 0 .. n-1 (n from 0 to 16): as a mask, loaded with zeros behind them, stored alone. */
static inline v16m v16m_first(int n)
{
    const float *first = (const float *)simd_first + 16 - n;
    return (v16m){_mm256_loadu_ps(first), _mm256_loadu_ps(first + 8)};
}
static inline v16f v16f_load_n(const float *p, int n)
{
    v16m m = v16m_first(n);
    return SIMD_F(_mm256_maskload_ps(p, _mm256_castps_si256(m.lo)),
                  _mm256_maskload_ps(p + 8, _mm256_castps_si256(m.hi)));
}
static inline void v16f_store_n(float *p, v16f x, int n)
{
    v16m m = v16m_first(n);
    _mm256_maskstore_ps(p, _mm256_castps_si256(m.lo), x.lo);
    _mm256_maskstore_ps(p + 8, _mm256_castps_si256(m.hi), x.hi);
}

#define SIMD_OP2(op)                                                                  \
    static inline v16f v16f_##op(v16f a, v16f b)                                      \
    {                                                                                 \
        return SIMD_F(_mm256_##op##_ps(a.lo, b.lo), _mm256_##op##_ps(a.hi, b.hi));    \
    }
SIMD_OP2(add) SIMD_OP2(sub) SIMD_OP2(mul) SIMD_OP2(div) SIMD_OP2(max) SIMD_OP2(min)
#undef SIMD_OP2
static inline v16f v16f_fma(v16f a, v16f b, v16f c)
{
    return SIMD_F(_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi));
}
static inline v16f v16f_abs(v16f a)
{
    const __m256 bit = _mm256_set1_ps(-0.0f);
    return SIMD_F(_mm256_andnot_ps(bit, a.lo), _mm256_andnot_ps(bit, a.hi));
}
static inline v16f v16f_copysign(v16f a, v16f sign)
{
    const __m256 bit = _mm256_set1_ps(-0.0f);
    a = v16f_abs(a);
    return SIMD_F(_mm256_or_ps(a.lo, _mm256_and_ps(bit, sign.lo)),
                  _mm256_or_ps(a.hi, _mm256_and_ps(bit, sign.hi)));
}

#define SIMD_OP2(op, name)                                                                    \
    static inline v16i v16i_##op(v16i a, v16i b)                                              \
    {                                                                                         \
        return SIMD_I(_mm256_##name##_epi32(a.lo, b.lo), _mm256_##name##_epi32(a.hi, b.hi));  \
    }
SIMD_OP2(add, add) SIMD_OP2(max, max)
#undef SIMD_OP2

static inline v16f v16i_to_float(v16i a)
{
    return SIMD_F(_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi));
}
/* Rounded to nearest even; the caller keeps |a| below 2^31. */
static inline v16i v16f_to_int(v16f a)
{
    return SIMD_I(_mm256_cvtps_epi32(a.lo), _mm256_cvtps_epi32(a.hi));
}
static inline v16i v16f_bits(v16f a)
{
    return SIMD_I(_mm256_castps_si256(a.lo), _mm256_castps_si256(a.hi));
}
static inline v16f v16f_add_exponent(v16f a, v16i n)
{
    v16i shifted = SIMD_I(_mm256_slli_epi32(n.lo, 23), _mm256_slli_epi32(n.hi, 23));
    v16i bits = v16i_add(v16f_bits(a), shifted);
    return SIMD_F(_mm256_castsi256_ps(bits.lo), _mm256_castsi256_ps(bits.hi));
}

static inline v16m v16f_lt(v16f a, v16f b)
{
    return (v16m){_mm256_cmp_ps(a.lo, b.lo, _CMP_LT_OQ), _mm256_cmp_ps(a.hi, b.hi, _CMP_LT_OQ)};
}
static inline v16m v16f_isnan(v16f a)
{
    return (v16m){_mm256_cmp_ps(a.lo, a.lo, _CMP_UNORD_Q),
                  _mm256_cmp_ps(a.hi, a.hi, _CMP_UNORD_Q)};
}
/* m ? a : b, lane by lane. */
static inline v16f v16f_select(v16m m, v16f a, v16f b)
{
    return SIMD_F(_mm256_blendv_ps(b.lo, a.lo, m.lo), _mm256_blendv_ps(b.hi, a.hi, m.hi));
}

static inline float f32_from_f16(uint16_t h) { return _cvtsh_ss(h); }
static inline v16f v16f_load_f16(const uint16_t *p)
{
    return SIMD_F(_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)),
                  _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p + 8))));
}
static inline __m256 simd_bf16(const uint16_t *p)
{
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}
static inline v16f v16f_load_bf16(const uint16_t *p)
{
    return SIMD_F(simd_bf16(p), simd_bf16(p + 8));
}
static inline void v16f_store_f16(uint16_t *p, v16f x)
{
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(x.lo, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128((__m128i *)(p + 8), _mm256_cvtps_ph(x.hi, _MM_FROUND_TO_NEAREST_INT));
}
static inline v16i v16i_load_i8(const int8_t *p)
{
    __m128i x = _mm_loadu_si128((const __m128i *)p);
    return SIMD_I(_mm256_cvtepi8_epi32(x), _mm256_cvtepi8_epi32(_mm_srli_si128(x, 8)));
}
/* Lane i is table[index[i]], from 0 to 15. */
static inline __m256 simd_lookup(v16f table, __m256i index)
{
    const __m256 second = _mm256_castsi256_ps(_mm256_slli_epi32(index, 28)); /* its sign */
    return _mm256_blendv_ps(_mm256_permutevar8x32_ps(table.lo, index),
                            _mm256_permutevar8x32_ps(table.hi, index), second);
}
static inline v16f v16f_lookup(v16f table, v16i index)
{
    return SIMD_F(simd_lookup(table, index.lo), simd_lookup(table, index.hi));
}
/* The low byte of each lane. */
static inline __m128i simd_low_bytes(__m256i x)
{
    const __m256i low = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1));
    x = _mm256_shuffle_epi8(x, low);
    return _mm_unpacklo_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
}
static inline void v16i_store_i8(int8_t *p, v16i x)
{
    __m128i bytes = _mm_unpacklo_epi64(simd_low_bytes(x.lo), simd_low_bytes(x.hi));
    _mm_storeu_si128((__m128i *)p, bytes);
}

#define SIMD_TREE(op)                                                                     \
    __m256 r8 = _mm256_##op##_ps(x.lo, x.hi);                                             \
    __m128 r4 = _mm_##op##_ps(_mm256_castps256_ps128(r8), _mm256_extractf128_ps(r8, 1));  \
    __m128 r2 = _mm_##op##_ps(r4, _mm_movehl_ps(r4, r4));                                 \
    return _mm_cvtss_f32(_mm_##op##_ss(r2, _mm_movehdup_ps(r2)))
static inline float v16f_reduce_add(v16f x) { SIMD_TREE(add); }
static inline float v16f_reduce_max(v16f x) { SIMD_TREE(max); }
#undef SIMD_TREE
#define SIMD_TREE(op)                                                                       \
    __m256i r8 = _mm256_##op##_epi32(x.lo, x.hi);                                           \
    __m128i r4 = _mm_##op##_epi32(_mm256_castsi256_si128(r8), _mm256_extracti128_si256(r8, 1)); \
    __m128i r2 = _mm_##op##_epi32(r4, _mm_shuffle_epi32(r4, 0x4e));                         \
    return _mm_cvtsi128_si32(_mm_##op##_epi32(r2, _mm_shuffle_epi32(r2, 0xb1)))
static inline int32_t v16i_reduce_add(v16i x) { SIMD_TREE(add); }
static inline int32_t v16i_reduce_max(v16i x) { SIMD_TREE(max); }
#undef SIMD_TREE

/* Sixty-four bytes: of sixteen lanes four each. */
typedef v16i v64;
static inline v64 v64_load(const uint8_t *p)
{
    return SIMD_I(_mm256_loadu_si256((const __m256i *)p),
                  _mm256_loadu_si256((const __m256i *)(p + 32)));
}
static inline v64 v64_set16(const uint8_t *p) /* the same 16 bytes four times */
{
    __m256i x = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)p));
    return SIMD_I(x, x);
}
/* (byte >> shift) & mask, where mask has no more than 8 - shift bits. */
static inline v64 v64_bits(v64 x, int shift, int mask)
{
    const __m256i m = _mm256_set1_epi8((char)mask);
    return SIMD_I(_mm256_and_si256(_mm256_srli_epi16(x.lo, shift), m),
                  _mm256_and_si256(_mm256_srli_epi16(x.hi, shift), m));
}
/* byte | high << shift, where high has no more than 8 - shift bits. */
static inline v64 v64_with_high(v64 x, v64 high, int shift)
{
    return SIMD_I(_mm256_or_si256(x.lo, _mm256_slli_epi16(high.lo, shift)),
                  _mm256_or_si256(x.hi, _mm256_slli_epi16(high.hi, shift)));
}
/* table[byte] for bytes below 16; the table is a v64_set16. */
static inline v64 v64_lookup(v64 table, v64 x)
{
    return SIMD_I(_mm256_shuffle_epi8(table.lo, x.lo), _mm256_shuffle_epi8(table.hi, x.hi));
}

/* acc[i] += sum over c < 4 of w[4 i + c] * x[c] for bytes w below 128, x being four bytes in an
 * int32. Pairs fit into 16 bits: 2 * 127 * 127. */
static inline __m256i simd_dot4(__m256i acc, __m256i w, __m256i x)
{
    __m256i pairs = _mm256_maddubs_epi16(w, x);
    return _mm256_add_epi32(acc, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
static inline v16i v16i_dot4(v16i acc, v64 w, int32_t x)
{
    const __m256i x4 = _mm256_set1_epi32(x);
    return SIMD_I(simd_dot4(acc.lo, w.lo, x4), simd_dot4(acc.hi, w.hi, x4));
}
/* The same of w - DOT_WIDE_OFFSET for any bytes: the sign goes over to x, which is never -128, and
 * pairs are at most 2 * 128 * 127. */
#define DOT_WIDE_OFFSET 128
static inline __m256i simd_dot4_wide(__m256i acc, __m256i w, __m256i x)
{
    w = _mm256_xor_si256(w, _mm256_set1_epi8(-128));
    return simd_dot4(acc, _mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
}
static inline v16i v16i_dot4_wide(v16i acc, v64 w, int32_t x)
{
    const __m256i x4 = _mm256_set1_epi32(x);
    return SIMD_I(simd_dot4_wide(acc.lo, w.lo, x4), simd_dot4_wide(acc.hi, w.hi, x4));
}

static inline v16i v16i_mul(v16i a, v16i b)
{
    return SIMD_I(_mm256_mullo_epi32(a.lo, b.lo), _mm256_mullo_epi32(a.hi, b.hi));
}
/* Sixteen bytes without sign, (byte >> shift) & mask. */
static inline __m256i simd_load_bits(const uint8_t *p, int shift, int mask)
{
    __m256i x = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
    return _mm256_and_si256(_mm256_srli_epi32(x, shift), _mm256_set1_epi32(mask));
}
static inline v16i v16i_load_bits(const uint8_t *p, int shift, int mask)
{
    return SIMD_I(simd_load_bits(p, shift, mask), simd_load_bits(p + 8, shift, mask));
}

/* The dword transpose: 16 bytes of each of 16 rows to out[c][row][4 bytes], c < 4. */
static inline __m256i simd_rows(const char *p, size_t stride)
{
    __m128i a = _mm_loadu_si128((const __m128i *)p);
    __m128i b = _mm_loadu_si128((const __m128i *)(p + 4 * stride));
    return _mm256_inserti128_si256(_mm256_castsi128_si256(a), b, 1);
}
static inline void simd_transpose_8x4(const char *p, size_t stride, char *out)
{
    __m256i r0 = simd_rows(p, stride), r1 = simd_rows(p + stride, stride);
    __m256i r2 = simd_rows(p + 2 * stride, stride), r3 = simd_rows(p + 3 * stride, stride);
    __m256i a = _mm256_unpacklo_epi32(r0, r1), b = _mm256_unpackhi_epi32(r0, r1);
    __m256i c = _mm256_unpacklo_epi32(r2, r3), d = _mm256_unpackhi_epi32(r2, r3);
    _mm256_storeu_si256((__m256i *)out, _mm256_unpacklo_epi64(a, c));
    _mm256_storeu_si256((__m256i *)(out + 64), _mm256_unpackhi_epi64(a, c));
    _mm256_storeu_si256((__m256i *)(out + 128), _mm256_unpacklo_epi64(b, d));
    _mm256_storeu_si256((__m256i *)(out + 192), _mm256_unpackhi_epi64(b, d));
}
static inline void transpose_16x4(const void *rows, size_t stride, void *out)
{
    simd_transpose_8x4(rows, stride, out);
    simd_transpose_8x4((const char *)rows + 8 * stride, stride, (char *)out + 32);
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
    return SIMD_F(_mm256_permute_ps(a.lo, 0xb1), _mm256_permute_ps(a.hi, 0xb1));
}

/* Quarters 0, 2, 1, 3: what a shuffle of two registers leaves, in order. */
static inline __m256 simd_in_order(__m256 a)
{
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(a), 0xd8));
}

/* The first and the second of 16 pairs. */
static inline void v16f_load_pairs(const float *p, v16f *first, v16f *second)
{
    __m256 a = _mm256_loadu_ps(p), b = _mm256_loadu_ps(p + 8);
    __m256 c = _mm256_loadu_ps(p + 16), d = _mm256_loadu_ps(p + 24);
    *first = SIMD_F(simd_in_order(_mm256_shuffle_ps(a, b, 0x88)),
                    simd_in_order(_mm256_shuffle_ps(c, d, 0x88)));
    *second = SIMD_F(simd_in_order(_mm256_shuffle_ps(a, b, 0xdd)),
                     simd_in_order(_mm256_shuffle_ps(c, d, 0xdd)));
}

/* Sixteen whole numbers of 64 bits. */
typedef struct { __m256i v[4]; } v16l;
static inline v16l v16l_add(v16l a, v16l b)
{
    for (int i = 0; i < 4; i++)
        a.v[i] = _mm256_add_epi64(a.v[i], b.v[i]);
    return a;
}
/* Rounded to nearest even; the caller keeps a from 0 to 2^51, which added to 2^52 lies in the low
 * bits. */
static inline __m256i simd_to_long(__m128 a)
{
    const __m256d integer = _mm256_set1_pd(0x1p52);
    const __m256d sum = _mm256_add_pd(_mm256_cvtps_pd(a), integer);
    return _mm256_sub_epi64(_mm256_castpd_si256(sum), _mm256_castpd_si256(integer));
}
static inline v16l v16f_to_long(v16f a)
{
    return (v16l){{simd_to_long(_mm256_castps256_ps128(a.lo)),
                   simd_to_long(_mm256_extractf128_ps(a.lo, 1)),
                   simd_to_long(_mm256_castps256_ps128(a.hi)),
                   simd_to_long(_mm256_extractf128_ps(a.hi, 1))}};
}
static inline void v16l_store(uint64_t *p, v16l a)
{
    for (int i = 0; i < 4; i++)
        _mm256_storeu_si256((__m256i *)(p + 4 * i), a.v[i]);
}
static inline uint64_t v16l_reduce_add(v16l a)
{
    uint64_t lane[4];
    const __m256i low = _mm256_add_epi64(a.v[0], a.v[1]), high = _mm256_add_epi64(a.v[2], a.v[3]);
    _mm256_storeu_si256((__m256i *)lane, _mm256_add_epi64(low, high));
    return lane[0] + lane[1] + lane[2] + lane[3];
}
/* Lane i as bit i. */
static inline uint32_t v16m_bits(v16m m)
{
    return (uint32_t)_mm256_movemask_ps(m.lo) | (uint32_t)_mm256_movemask_ps(m.hi) << 8;
}
