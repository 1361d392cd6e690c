/* The primitives of simd.h in plain C: arrays of 16, fmaf from the C library. */
typedef struct { float v[LANES]; } v16f;
typedef struct { int32_t v[LANES]; } v16i;
typedef struct { int32_t v[LANES]; } v16m;

#define SIMD_MAP(type, expression)        \
    type r;                               \
    for (int i = 0; i < LANES; i++)       \
        r.v[i] = expression;              \
    return r

/* So many sums of at most so many rows stay in registers, beside what they are made of. */
#define V16F_SUMS 4
#define V16F_ROWS 4

static inline v16f v16f_load(const float *p) { SIMD_MAP(v16f, p[i]); }
static inline void v16f_store(float *p, v16f x) { memcpy(p, x.v, sizeof x.v); }
static inline v16f v16f_set1(float x) { SIMD_MAP(v16f, x); }
static inline v16i v16i_set1(int32_t x) { SIMD_MAP(v16i, x); }

/* Lanes 0 .. n-1 (n from 0 to 16): as a mask, loaded with zeros behind them, stored alone. */
static inline v16m v16m_first(int n) { SIMD_MAP(v16m, i < n); }
static inline v16f v16f_load_n(const float *p, int n) { SIMD_MAP(v16f, i < n ? p[i] : 0.0f); }
static inline void v16f_store_n(float *p, v16f x, int n) { memcpy(p, x.v, 4 * (size_t)n); }

static inline v16f v16f_add(v16f a, v16f b) { SIMD_MAP(v16f, a.v[i] + b.v[i]); }
static inline v16f v16f_sub(v16f a, v16f b) { SIMD_MAP(v16f, a.v[i] - b.v[i]); }
static inline v16f v16f_mul(v16f a, v16f b) { SIMD_MAP(v16f, a.v[i] * b.v[i]); }
static inline v16f v16f_div(v16f a, v16f b) { SIMD_MAP(v16f, a.v[i] / b.v[i]); }
static inline v16f v16f_max(v16f a, v16f b) { SIMD_MAP(v16f, a.v[i] > b.v[i] ? a.v[i] : b.v[i]); }
static inline v16f v16f_min(v16f a, v16f b) { SIMD_MAP(v16f, a.v[i] < b.v[i] ? a.v[i] : b.v[i]); }
static inline v16f v16f_fma(v16f a, v16f b, v16f c)
{
    SIMD_MAP(v16f, fmaf(a.v[i], b.v[i], c.v[i]));
}
static inline v16f v16f_abs(v16f a) { SIMD_MAP(v16f, fabsf(a.v[i])); }
static inline v16f v16f_copysign(v16f a, v16f s) { SIMD_MAP(v16f, copysignf(a.v[i], s.v[i])); }

static inline v16i v16i_max(v16i a, v16i b) { SIMD_MAP(v16i, a.v[i] > b.v[i] ? a.v[i] : b.v[i]); }

static inline v16f v16i_to_float(v16i a) { SIMD_MAP(v16f, (float)a.v[i]); }
/* Rounded to nearest even; the caller keeps |a| below 2^31. */
static inline v16i v16f_to_int(v16f a) { SIMD_MAP(v16i, (int32_t)lrintf(a.v[i])); }
static inline v16i v16f_bits(v16f a)
{
    v16i r;
    memcpy(r.v, a.v, sizeof r.v);
    return r;
}
static inline v16f v16f_add_exponent(v16f a, v16i n)
{
    v16i bits = v16f_bits(a);
    for (int i = 0; i < LANES; i++)
        bits.v[i] = (int32_t)((uint32_t)bits.v[i] + ((uint32_t)n.v[i] << 23));
    memcpy(a.v, bits.v, sizeof a.v);
    return a;
}

static inline v16m v16f_lt(v16f a, v16f b) { SIMD_MAP(v16m, a.v[i] < b.v[i]); }
static inline v16m v16f_isnan(v16f a) { SIMD_MAP(v16m, a.v[i] != a.v[i]); }
/* m ? a : b, lane by lane. */
static inline v16f v16f_select(v16m m, v16f a, v16f b) { SIMD_MAP(v16f, m.v[i] ? a.v[i] : b.v[i]); }

static inline float f32_from_f16(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, magnitude = h & 0x7fff, bits;
    if (magnitude >= 0x7c00) /* inf, or NaN made quiet */
        bits = sign | (magnitude << 13) | 0x70000000 | (magnitude > 0x7c00 ? 0x400000 : 0);
    else if (magnitude >= 0x400)
        bits = sign | ((magnitude << 13) + 0x38000000);
    else { /* zero or subnormal: an exact multiple of 2^-24 */
        float x = (float)magnitude * 0x1p-24f;
        memcpy(&bits, &x, 4);
        bits |= sign;
    }
    float x;
    memcpy(&x, &bits, 4);
    return x;
}
static inline uint16_t simd_to_f16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, 4);
    uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000) /* NaN made quiet */
        return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 0x1ff));
    if (magnitude >= 0x477ff000) /* rounds to 2^16 or more */
        return (uint16_t)(sign | 0x7c00);
    if (magnitude < 0x38800000) { /* below 2^-14: a multiple of 2^-24, rounded by the hardware */
        float units;
        memcpy(&units, &magnitude, 4);
        return (uint16_t)(sign | (uint32_t)lrintf(units * 0x1p24f));
    }
    uint32_t odd = magnitude >> 13 & 1;
    return (uint16_t)(sign | (magnitude - 0x38000000 + 0xfff + odd) >> 13);
}
static inline v16f v16f_load_f16(const uint16_t *p) { SIMD_MAP(v16f, f32_from_f16(p[i])); }
static inline v16f v16f_load_bf16(const uint16_t *p)
{
    v16f r;
    for (int i = 0; i < LANES; i++) {
        uint32_t bits = (uint32_t)p[i] << 16;
        memcpy(&r.v[i], &bits, 4);
    }
    return r;
}
static inline void v16f_store_f16(uint16_t *p, v16f x)
{
    for (int i = 0; i < LANES; i++)
        p[i] = simd_to_f16(x.v[i]);
}
static inline v16i v16i_load_i8(const int8_t *p) { SIMD_MAP(v16i, p[i]); }
/* Lane i is table[index[i]], from 0 to 15. */
static inline v16f v16f_lookup(v16f table, v16i index) { SIMD_MAP(v16f, table.v[index.v[i]]); }
/* The low byte of each lane. */
static inline void v16i_store_i8(int8_t *p, v16i x)
{
    for (int i = 0; i < LANES; i++)
        p[i] = (int8_t)x.v[i];
}

static inline float v16f_reduce_add(v16f x)
{
    for (int width = 8; width > 0; width /= 2)
        for (int i = 0; i < width; i++)
            x.v[i] = x.v[i] + x.v[i + width];
    return x.v[0];
}
static inline float v16f_reduce_max(v16f x)
{
    for (int width = 8; width > 0; width /= 2)
        for (int i = 0; i < width; i++)
            x.v[i] = x.v[i] > x.v[i + width] ? x.v[i] : x.v[i + width];
    return x.v[0];
}
static inline int32_t v16i_reduce_add(v16i x)
{
    int32_t sum = 0;
    for (int i = 0; i < LANES; i++)
        sum += x.v[i];
    return sum;
}
static inline int32_t v16i_reduce_max(v16i x)
{
    int32_t most = x.v[0];
    for (int i = 1; i < LANES; i++)
        most = x.v[i] > most ? x.v[i] : most;
    return most;
}

/* Sixty-four bytes: of sixteen lanes four each. */
typedef struct { uint8_t v[4 * LANES]; } v64;
#define SIMD_BYTES(expression)           \
    v64 r;                               \
    for (int i = 0; i < 4 * LANES; i++)  \
        r.v[i] = (uint8_t)(expression);  \
    return r
static inline v64 v64_load(const uint8_t *p) { SIMD_BYTES(p[i]); }
static inline v64 v64_set16(const uint8_t *p) { SIMD_BYTES(p[i & 15]); } /* four times */
/* (byte >> shift) & mask, where mask has no more than 8 - shift bits. */
static inline v64 v64_bits(v64 x, int shift, int mask) { SIMD_BYTES(x.v[i] >> shift & mask); }
/* byte | high << shift, where high has no more than 8 - shift bits. */
static inline v64 v64_with_high(v64 x, v64 high, int shift)
{
    SIMD_BYTES(x.v[i] | high.v[i] << shift);
}
/* table[byte] for bytes below 16; the table is a v64_set16. */
static inline v64 v64_lookup(v64 table, v64 x) { SIMD_BYTES(table.v[x.v[i]]); }

/* acc[i] += sum over c < 4 of (w[4 i + c] - DOT_WIDE_OFFSET) * x[c], x being four bytes in an int32;
 * v16i_dot4 is for bytes below 128, and has no offset. */
#define DOT_WIDE_OFFSET 0
static inline v16i v16i_dot4_wide(v16i acc, v64 w, int32_t x)
{
    int8_t x4[4];
    memcpy(x4, &x, 4);
    for (int i = 0; i < LANES; i++)
        for (int c = 0; c < 4; c++)
            acc.v[i] += w.v[4 * i + c] * x4[c];
    return acc;
}
static inline v16i v16i_dot4(v16i acc, v64 w, int32_t x) { return v16i_dot4_wide(acc, w, x); }

static inline v16i v16i_add(v16i a, v16i b) { SIMD_MAP(v16i, a.v[i] + b.v[i]); }
static inline v16i v16i_mul(v16i a, v16i b) { SIMD_MAP(v16i, a.v[i] * b.v[i]); }
/* Sixteen bytes without sign, (byte >> shift) & mask. */
static inline v16i v16i_load_bits(const uint8_t *p, int shift, int mask)
{
    SIMD_MAP(v16i, p[i] >> shift & mask);
}

/* The dword transpose: 16 bytes of each of 16 rows to out[c][row][4 bytes], c < 4. */
static inline void transpose_16x4(const void *rows, size_t stride, void *out)
{
    for (int c = 0; c < 4; c++)
        for (int i = 0; i < LANES; i++)
            memcpy((char *)out + 64 * c + 4 * i, (const char *)rows + i * stride + 4 * c, 4);
}

/* Sixteen bytes below 16 become table[byte]. */
static inline void lookup_16(const uint8_t *table, uint8_t *bytes)
{
    for (int i = 0; i < 16; i++)
        bytes[i] = table[bytes[i]];
}

/* Lanes 0 and 1, 2 and 3, ... in each other's places. */
static inline v16f v16f_swap_pairs(v16f a) { SIMD_MAP(v16f, a.v[i ^ 1]); }

/* The first and the second of 16 pairs. */
static inline void v16f_load_pairs(const float *p, v16f *first, v16f *second)
{
    for (int i = 0; i < LANES; i++) {
        first->v[i] = p[2 * i];
        second->v[i] = p[2 * i + 1];
    }
}

/* Sixteen whole numbers of 64 bits. */
typedef struct { uint64_t v[LANES]; } v16l;
static inline v16l v16l_add(v16l a, v16l b) { SIMD_MAP(v16l, a.v[i] + b.v[i]); }
/* Rounded to nearest even; the caller keeps a from 0 to 2^51, which added to 2^52 lies in the low
 * bits. */
static inline v16l v16f_to_long(v16f a)
{
    const double integer = 0x1p52;
    uint64_t base;
    v16l r;
    memcpy(&base, &integer, 8);
    for (int i = 0; i < LANES; i++) {
        const double sum = (double)a.v[i] + integer;
        memcpy(&r.v[i], &sum, 8);
        r.v[i] -= base;
    }
    return r;
}
static inline void v16l_store(uint64_t *p, v16l a) { memcpy(p, a.v, sizeof a.v); }
static inline uint64_t v16l_reduce_add(v16l a)
{
    uint64_t sum = 0;
    for (int i = 0; i < LANES; i++)
        sum += a.v[i];
    return sum;
}
/* Lane i as bit i. */
static inline uint32_t v16m_bits(v16m m)
{
    uint32_t bits = 0;
    for (int i = 0; i < LANES; i++)
        bits |= (uint32_t)(m.v[i] != 0) << i;
    return bits;
}
