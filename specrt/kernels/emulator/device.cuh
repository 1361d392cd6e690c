/* What a CUDA compiler has built in, and cuda/device.cuh, over the emulated machine.
 *
 * Kernels may use what stands here and no more: the rest does not compile.
 */
#include <type_traits>

#include "launch.h"

#define __global__
#define __device__
#define __forceinline__ inline
#define __restrict__ __restrict
#define __launch_bounds__(...)
/* The line of a caller, for messages. */
#define AT const char *file = __builtin_FILE(), int line = __builtin_LINE()
#define HERE (emulator::Place{file, line})

struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(8) int2 { int x, y; };
struct alignas(16) int4 { int x, y, z, w; };
struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

/* Arithmetic: one rounding each, to nearest even. */
inline float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsqrt_rn(float a) { return __builtin_sqrtf(a); }
inline int __float2int_rn(float a) /* saturates; 0 for NaN */
{
    if (a != a)
        return 0;
    if (a >= 0x1p31f)
        return 0x7fffffff;
    return a < -0x1p31f ? -0x7fffffff - 1 : static_cast<int>(__builtin_lrintf(a));
}
inline float __int2float_rn(int a) { return static_cast<float>(a); }

template <class To, class From> inline To with_bits_of(From from)
{
    static_assert(sizeof(To) <= sizeof(From), "bits are taken from something as large");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}
inline int __float_as_int(float a) { return with_bits_of<int>(a); }
inline float __int_as_float(int a) { return with_bits_of<float>(a); }

/* In integers, so that no subnormal half is flushed: cuda/device.cuh says what they do. */
inline float half_bits_to_float(unsigned short bits)
{
    const int sign = (bits & 0x8000) << 16, rest = bits & 0x7fff;
    if (rest > 0x7c00)
        return __int_as_float(0x7fffffff);
    if (rest >= 0x400)
        return __int_as_float(sign | ((rest << 13) + (rest == 0x7c00 ? 224 << 23 : 112 << 23)));
    const float x = static_cast<float>(rest) * 0x1p-24f;
    return __int_as_float(sign | __float_as_int(x));
}
inline unsigned short float_to_half_bits(float x)
{
    const int sign = __float_as_int(x) >> 16 & 0x8000, rest = __float_as_int(x) & 0x7fffffff;
    if (rest > 0x7f800000)
        return 0x7fff;
    if (rest >= 0x477ff000) /* 65520 */
        return static_cast<unsigned short>(sign | 0x7c00);
    if (rest < 0x38800000) /* 2^-14: the last places of 0.5 + |x| are those of a subnormal half */
        return static_cast<unsigned short>(
            sign | (__float_as_int(__int_as_float(rest) + 0.5f) - __float_as_int(0.5f)));
    const int rounded = rest + 0xfff + (rest >> 13 & 1) - (112 << 23);
    return static_cast<unsigned short>(sign | rounded >> 13);
}

inline int __dp4a(int a, int b, int c)
{
    unsigned sum = static_cast<unsigned>(c); /* wraps as the device does */
    for (int i = 0; i < 32; i += 8)
        sum += static_cast<signed char>(a >> i) * static_cast<signed char>(b >> i);
    return static_cast<int>(sum);
}

inline int __popc(unsigned a) { return __builtin_popcount(a); }

/* Bytes of y and x (x is lower) that the nibbles of a selector name. */
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector)
{
    const uint64_t both = x | static_cast<uint64_t>(y) << 32;
    unsigned taken = 0;
    for (int i = 0; i < 4; i++)
        taken |= static_cast<unsigned>(both >> 8 * (selector >> 4 * i & 7) & 255) << 8 * i;
    return taken;
}

/* Barriers and warps. */
inline void __syncthreads(AT) { emulator::block_barrier(HERE); }
inline void __syncwarp(unsigned mask = 0xffffffff, AT)
{
    emulator::warp_operation(mask, 0, emulator::SYNC, HERE);
}
inline unsigned __ballot_sync(unsigned mask, int vote, AT)
{
    return static_cast<unsigned>(emulator::warp_operation(mask, vote != 0, emulator::VOTE, HERE));
}

/* A lane whose source lies outside of its part of the warp takes its own value. */
template <class T> T shuffle(unsigned mask, T value, int source, int width, emulator::Place at)
{
    static_assert(std::is_arithmetic<T>::value && (sizeof(T) == 4 || sizeof(T) == 8),
                  "shuffles move 4 or 8 bytes");
    if (width < 1 || width > 32 || (width & (width - 1)))
        emulator::fail(at, "a shuffle of width %d; expected a power of two up to 32", width);
    const int lane = static_cast<int>(emulator::machine.current->lane);
    const bool inside = source >= 0 && source / width == lane / width;
    uint64_t given = 0;
    memcpy(&given, &value, sizeof value);
    return with_bits_of<T>(emulator::warp_operation(mask, given, inside ? source : lane, at));
}
inline int shuffling_lane() { return static_cast<int>(emulator::machine.current->lane); }
template <class T> T __shfl_sync(unsigned mask, T value, int source, int width = 32, AT)
{
    const int first = shuffling_lane() & -width;
    return shuffle(mask, value, first + (source & (width - 1)), width, HERE);
}
template <class T> T __shfl_xor_sync(unsigned mask, T value, int flips, int width = 32, AT)
{
    return shuffle(mask, value, shuffling_lane() ^ flips, width, HERE);
}
template <class T> T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32, AT)
{
    return shuffle(mask, value, shuffling_lane() + static_cast<int>(by), width, HERE);
}
template <class T> T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32, AT)
{
    return shuffle(mask, value, shuffling_lane() - static_cast<int>(by), width, HERE);
}

/* Atomics: of integers, as a float sum would depend on the order. */
template <class T, class Change> T atomically(T *p, Change change, emulator::Place at)
{
    static_assert(std::is_integral<T>::value && (sizeof(T) == 4 || sizeof(T) == 8),
                  "atomics are of 32 or 64-bit integers");
    emulator::check_bounds(p, sizeof(T), alignof(T), at, true);
    T old = __atomic_load_n(p, __ATOMIC_RELAXED); /* the sanitiser knows these */
    while (!__atomic_compare_exchange_n(p, &old, change(old), false, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED))
        ;
    return old;
}
template <class T> T atomicAdd(T *p, T value, AT)
{
    using Wrapping = std::make_unsigned_t<T>;
    return atomically(
        p, [=](T old) { return T(Wrapping(old) + Wrapping(value)); }, HERE);
}
template <class T> T atomicMax(T *p, T value, AT)
{
    return atomically(
        p, [=](T old) { return old > value ? old : value; }, HERE);
}
template <class T> T atomicMin(T *p, T value, AT)
{
    return atomically(
        p, [=](T old) { return old < value ? old : value; }, HERE);
}
template <class T> T atomicExch(T *p, T value, AT)
{
    return atomically(
        p, [=](T) { return value; }, HERE);
}
template <class T> T atomicCAS(T *p, T compare, T value, AT)
{
    return atomically(
        p, [=](T old) { return old == compare ? value : old; }, HERE);
}

/* cuda/device.cuh says what these do. */
template <class T> T load(const T *p, AT)
{
    emulator::check_access(p, sizeof(T), alignof(T), false, HERE);
    return *p;
}
template <class T> void store(T *p, T value, AT)
{
    emulator::check_access(p, sizeof(T), alignof(T), true, HERE);
    *p = value;
}
template <class T> T *shared_block() { return reinterpret_cast<T *>(emulator::machine.shared); }

inline void cp_async_16(void *to, const void *from, bool there, AT)
{
    if (!emulator::is_shared(to, 16))
        emulator::fail(HERE, "cp.async writes 16 bytes at %p, outside of shared memory", to);
    emulator::check_access(to, 16, 16, true, HERE);
    if (there)
        emulator::check_access(from, 16, 16, false, HERE);
    memset(to, emulator::POISON, 16); /* nothing is there before the wait */
    emulator::queue_copy({static_cast<char *>(to),
                          there ? static_cast<const char *>(from) : nullptr, 16},
                         HERE);
}
inline void cp_async_commit() { emulator::close_group(); }
template <int num_pending> void cp_async_wait(AT) { emulator::wait_copies(num_pending, HERE); }

/* Every lane lays its fragments open, takes from the others' what its own sums need, and waits
 * until all have: the layout is the table of the PTX ISA, as cuda/device.cuh says it. */
inline void mma_s8(int (&c)[4], const int (&a)[4], const int (&b)[2], AT)
{
    const emulator::Unwatched unwatched;
    emulator::Fibre &me = *emulator::machine.current;
    memcpy(me.fragments.a, a, sizeof a);
    memcpy(me.fragments.b, b, sizeof b);
    emulator::warp_operation(0xffffffff, 0, emulator::VOTE, HERE);
    const emulator::Fibre *warp = &me - me.lane;
    const unsigned g = me.lane / 4, t = me.lane % 4;
    for (unsigned part = 0; part < 4; part++)
        for (int i = 0; i < 4; i++) {
            const int *row = warp[4 * g + part].fragments.a;
            const int *column = warp[4 * (2 * t + i % 2) + part].fragments.b;
            c[i] = __dp4a(row[2 + i / 2], column[1], __dp4a(row[i / 2], column[0], c[i]));
        }
    emulator::warp_operation(0xffffffff, 0, emulator::VOTE, HERE);
}

/* Of half as many columns: the other half is zeros. */
inline void mma_s8(int (&c)[4], const int (&a)[2], int b, AT)
{
    mma_s8(c, {a[0], a[1], 0, 0}, {b, 0}, file, line);
}

inline void load_matrices(int (&to)[4], const void *row, AT)
{
    if (!emulator::is_shared(row, 16))
        emulator::fail(HERE, "ldmatrix reads 16 bytes at %p, outside of shared memory", row);
    emulator::check_bounds(row, 16, 16, HERE);
    const int lane = shuffling_lane();
    for (int m = 0; m < 4; m++) {
        const uint64_t start = emulator::warp_operation(
            0xffffffff, reinterpret_cast<uint64_t>(row), 8 * m + lane / 4, HERE);
        to[m] = load(reinterpret_cast<const int *>(start) + lane % 4, file, line);
    }
}

#undef AT
#undef HERE

/* Not in the language of kernels: assembler, and math whose bits the device does not share. */
#define asm ASSEMBLER_IS_NOT_EMULATED
#pragma GCC poison expf exp2f logf log2f tanhf sinf cosf powf rsqrtf
