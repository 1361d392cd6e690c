/* The types of cached keys and values: how 16 bytes of a key, and 4 of a value, become floats. */
#include "kv.cuh"

template <class T, int n> struct Words;
template <> struct Words<float, 1> { using type = float; };
template <> struct Words<float, 2> { using type = float2; };
template <> struct Words<float, 4> { using type = float4; };
template <> struct Words<unsigned, 4> { using type = uint4; };

/* n words that lie side by side, in one access. */
template <class T, int n> __device__ __forceinline__ void load_words(const T *p, T (&x)[n])
{
    using Word = typename Words<T, n>::type;
    const Word word = load(reinterpret_cast<const Word *>(p));
    memcpy(x, &word, sizeof word);
}
template <class T, int n> __device__ __forceinline__ void store_words(T *p, const T (&x)[n])
{
    using Word = typename Words<T, n>::type;
    Word word;
    memcpy(&word, x, sizeof word);
    store(reinterpret_cast<Word *>(p), word);
}

/* A type of cache: DIMS values in 16 bytes of a key, WORD values in 4 bytes of a value; a chain of
 * a dot is CHAIN vectors of 16 bytes, 32 dims, which is what a scale is of, where there are any;
 * KEYS values are weighed at a time. */
struct F32 {
    static constexpr int DIMS = 4, WORD = 1, CHAIN = 8, KEYS = 4;
    static constexpr bool SCALED = false;
    static __device__ __forceinline__ void four(const unsigned (&raw)[4], int, float (&x)[4])
    {
#pragma unroll
        for (int i = 0; i < 4; i++)
            x[i] = __int_as_float(static_cast<int>(raw[i]));
    }
    static __device__ __forceinline__ void word(unsigned raw, float (&x)[WORD])
    {
        x[0] = __int_as_float(static_cast<int>(raw));
    }
};

struct F16 {
    static constexpr int DIMS = 8, WORD = 2, CHAIN = 4, KEYS = 4;
    static constexpr bool SCALED = false;
    static __device__ __forceinline__ void four(const unsigned (&raw)[4], int at, float (&x)[4])
    {
        word(raw[2 * at], x[0], x[1]);
        word(raw[2 * at + 1], x[2], x[3]);
    }
    static __device__ __forceinline__ void word(unsigned raw, float &low, float &high)
    {
        low = half_bits_to_float(static_cast<unsigned short>(raw & 0xffff));
        high = half_bits_to_float(static_cast<unsigned short>(raw >> 16));
    }
    static __device__ __forceinline__ void word(unsigned raw, float (&x)[WORD])
    {
        word(raw, x[0], x[1]);
    }
};

/* Codes without their scales. */
struct Q8_0 {
    static constexpr int DIMS = 16, WORD = 4, CHAIN = 2, KEYS = 2;
    static constexpr bool SCALED = true;
    static __device__ __forceinline__ void four(const unsigned (&raw)[4], int at, float (&x)[4])
    {
        word(raw[at], x);
    }
    static __device__ __forceinline__ void word(unsigned raw, float (&x)[WORD])
    {
        raw ^= 0x80808080u; /* code + 128, which becomes the last places of 2^23 */
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const unsigned bits = (raw >> 8 * i & 0xff) | 0x4b000000;
            x[i] = __fsub_rn(__int_as_float(static_cast<int>(bits)), 8388736.0f);
        }
    }
};
