/* What a draw is made of: the order of logits, whole weights, random bits, and what changes logits;
 * specrt/reference/sampling.py says what each of them is. */
#include "keys.cuh"

#define BIN_BITS 9
#define FLAG_SEEN 1 /* the id is in the history */
#define FLAG_ENDS 2 /* it is not drawn before min_total */

typedef unsigned long long u64;

const u64 ALL = ~0ull;

struct Draw { /* of a sequence; specrt/state/draw.py has the same */
    u64 seed;
    double top_p;
    float scale, least; /* 1 / temperature, 0 for greedy; log(min_p), or -29 if that is more */
    float repetition, presence, frequency;
    int top_k; /* 0 for none */
    int min_total;
    int first_edit, num_edits;
    int draws; /* 0: it does not */
    int unused[2];
};

/* A row, and what of it is kept: scaled logits from least on, and no key above cut. */
struct Row {
    const float *x;
    int size;
    float max, scale, least;
    u64 cut;
};

/* Ascending keys are descending logits, then ascending ids; NaN counts as -inf, -0 as 0. */
__device__ __forceinline__ u64 order_key(float x, int id) { return ~key_of(x, id); }

__device__ __forceinline__ float key_logit(u64 key)
{
    unsigned bits = ~static_cast<unsigned>(key >> 32);
    bits ^= bits >> 31 ? 0x80000000u : 0xffffffffu;
    return __int_as_float(static_cast<int>(bits));
}

__device__ __forceinline__ float capped(float x)
{
    const float most = __int_as_float(0x7f7fffff);
    return most < x ? most : x;
}

/* rint(2^40 exp(t)) for -29 <= t <= 0; of -29 it is 0. */
__device__ __forceinline__ u64 weight_of(float t)
{
    const float rounding = 12582912.0f; /* 3 * 2^22: adding it rounds to the nearest integer */
    const float n = __fsub_rn(__fadd_rn(__fmul_rn(t, 1.4426950408889634f), rounding), rounding);
    const float r = __fsub_rn(__fsub_rn(t, __fmul_rn(n, 0.693359375f)),
                              __fmul_rn(n, -2.12194440e-4f));
    float p = 1.9875691500e-4f;
    p = __fadd_rn(__fmul_rn(p, r), 1.3981999507e-3f);
    p = __fadd_rn(__fmul_rn(p, r), 8.3334519073e-3f);
    p = __fadd_rn(__fmul_rn(p, r), 4.1665795894e-2f);
    p = __fadd_rn(__fmul_rn(p, r), 1.6666665459e-1f);
    p = __fadd_rn(__fmul_rn(p, r), 5.0000001201e-1f);
    p = __fadd_rn(__fadd_rn(__fmul_rn(p, __fmul_rn(r, r)), r), 1.0f);
    const unsigned bits = static_cast<unsigned>(__float_as_int(p));
    const unsigned mantissa = (bits & 0x7fffffu) | 0x800000u;
    const int shift = static_cast<int>(bits >> 23) - 150 + static_cast<int>(n) + 40;
    if (shift >= 0)
        return static_cast<u64>(mantissa) << shift;
    if (shift < -25)
        return 0;
    const unsigned half = (1u << (-shift - 1)) - 1 + (mantissa >> -shift & 1); /* ties to even */
    return (mantissa + half) >> -shift;
}

/* Whether a logit is kept, and its t: 0 for the largest, below for all others. */
__device__ __forceinline__ bool keeps(const Row &row, float x, int id, float &t)
{
    t = __fmul_rn(__fsub_rn(capped(x), row.max), row.scale);
    return t >= row.least && order_key(x, id) <= row.cut; /* NaN is not */
}

/* How far below the largest, in steps of which 2^(2 BIN_BITS) cover all that has a weight. */
__device__ __forceinline__ unsigned distance(float t)
{
    return static_cast<unsigned>(__fmul_rn(t, -8192.0f));
}

/* The upper half of a product. */
__device__ __forceinline__ u64 multiply_high(u64 a, u64 b)
{
    const u64 a0 = a & 0xffffffffu, a1 = a >> 32, b0 = b & 0xffffffffu, b1 = b >> 32;
    const u64 middle = a1 * b0 + (a0 * b0 >> 32), other = a0 * b1 + (middle & 0xffffffffu);
    return a1 * b1 + (middle >> 32) + (other >> 32);
}

/* 64 random bits of Philox4x32-10. */
__device__ __forceinline__ u64 philox(u64 seed, u64 position)
{
    unsigned c0 = static_cast<unsigned>(position), c1 = static_cast<unsigned>(position >> 32);
    unsigned k0 = static_cast<unsigned>(seed), k1 = static_cast<unsigned>(seed >> 32);
    unsigned c2 = 0, c3 = 0;
    for (int i = 0; i < 10; i++) {
        const u64 p0 = 0xD2511F53ull * c0, p1 = 0xCD9E8D57ull * c2;
        c0 = static_cast<unsigned>(p1 >> 32) ^ c1 ^ k0;
        c2 = static_cast<unsigned>(p0 >> 32) ^ c3 ^ k1;
        c1 = static_cast<unsigned>(p1);
        c3 = static_cast<unsigned>(p0);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return static_cast<u64>(c0) << 32 | c1;
}

/* A logit after suppression, bias and penalties; seen and count are of the history and of the
 * output before the token that is drawn. */
__device__ __forceinline__ float edited(float x, const Draw *draw, bool suppressed, float bias,
                                        bool seen, int count)
{
    const float repetition = load(&draw->repetition), frequency = load(&draw->frequency);
    if (suppressed)
        x = __int_as_float(static_cast<int>(0xff800000u));
    if (bias != 0.0f)
        x = __fadd_rn(x, bias);
    if (seen)
        x = x > 0.0f ? __fdiv_rn(x, repetition) : __fmul_rn(x, repetition);
    if (count > 0)
        x = __fsub_rn(x, __fadd_rn(load(&draw->presence),
                                   __fmul_rn(frequency, __int2float_rn(count))));
    return x;
}
