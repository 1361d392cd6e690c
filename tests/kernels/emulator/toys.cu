/* Small kernels, right and wrong, that the emulator is held to. */
#include "device.cuh"

#define THREADS 96

/* Each value from the thread at the other end, with and without the barrier that it takes. */
template <bool barrier> __device__ void reversed(const int *x, int *out)
{
    int *shared = shared_block<int>();
    const int i = static_cast<int>(blockIdx.x) * THREADS + static_cast<int>(threadIdx.x);
    store(shared + threadIdx.x, load(x + i));
    if (barrier)
        __syncthreads();
    store(out + i, load(shared + THREADS - 1 - threadIdx.x));
}
extern "C" __global__ void __launch_bounds__(THREADS)
reverse(const int *x, int *out)
{
    reversed<true>(x, out);
}
extern "C" __global__ void __launch_bounds__(THREADS)
reverse_without_barrier(const int *x, int *out)
{
    reversed<false>(x, out);
}

/* The same without the checks of load and store: only the order of threads can tell. */
extern "C" __global__ void __launch_bounds__(THREADS)
unchecked_without_barrier(const int *x, int *out)
{
    int *shared = shared_block<int>();
    shared[threadIdx.x] = x[threadIdx.x];
    out[threadIdx.x] = shared[THREADS - 1 - threadIdx.x];
}

/* A float to a half, and a half to a float. */
extern "C" __global__ void __launch_bounds__(THREADS)
halves(const float *x, unsigned short *rounded, const unsigned short *bits, float *out)
{
    const unsigned i = blockIdx.x * THREADS + threadIdx.x;
    store(rounded + i, float_to_half_bits(load(x + i)));
    store(out + i, half_bits_to_float(load(bits + i)));
}

/* A buffer is written again while others may still read it. */
extern "C" __global__ void __launch_bounds__(THREADS)
reuse_without_barrier(const int *x, int *out)
{
    int *shared = shared_block<int>();
    int sum = 0;
    for (int round = 0; round < 3; round++) {
        store(shared + threadIdx.x, load(x + threadIdx.x) + round);
        __syncthreads();
        sum += load(shared + (threadIdx.x + 40) % THREADS);
    }
    store(out + threadIdx.x, sum);
}

/* A warp's own exchange through memory, with and without its barrier. */
template <bool barrier> __device__ void exchanged(const int *x, int *out)
{
    int *shared = shared_block<int>();
    store(shared + threadIdx.x, load(x + threadIdx.x));
    if (barrier)
        __syncwarp();
    else
        __shfl_xor_sync(0xffffffffu, 0, 1); /* orders no memory */
    store(out + threadIdx.x, load(shared + (threadIdx.x ^ 31)));
}
extern "C" __global__ void __launch_bounds__(THREADS)
exchange(const int *x, int *out)
{
    exchanged<true>(x, out);
}
extern "C" __global__ void __launch_bounds__(THREADS)
exchange_by_shuffle(const int *x, int *out)
{
    exchanged<false>(x, out);
}

/* A warp in parts: lanes below 8 exchange, then lanes below 16, each behind a barrier of their own
 * mask, while the upper half waits for all. Bit i of faults takes barrier i away. */
extern "C" __global__ void __launch_bounds__(THREADS)
exchange_in_parts(const int *x, int *out, int faults)
{
    int *shared = shared_block<int>();
    const unsigned lane = threadIdx.x % 32;
    int v = load(x + threadIdx.x);
    if (lane < 16) {
        if (lane < 8) {
            store(shared + threadIdx.x, v);
            if (!(faults & 1))
                __syncwarp(0x000000ffu);
            v += load(shared + (threadIdx.x ^ 7));
        }
        if (!(faults & 2))
            __syncwarp(0x0000ffffu);
        store(shared + threadIdx.x, v);
        if (!(faults & 4))
            __syncwarp(0x0000ffffu);
        v += load(shared + (threadIdx.x ^ 15));
    }
    __syncwarp();
    store(out + threadIdx.x, v);
}

/* Lanes 0 and 1 meet, then 1 and 2: what lane 0 wrote is there for lane 2. */
extern "C" __global__ void __launch_bounds__(THREADS)
handed_on(int *out, int by_two)
{
    int *shared = shared_block<int>();
    const unsigned lane = threadIdx.x;
    if (lane == 0)
        store(shared, 5);
    if (lane < 2)
        __syncwarp(0x3u);
    if (lane == 1 || lane == 2)
        __syncwarp(0x6u);
    if (lane == (by_two ? 2u : 3u))
        store(out, load(shared));
}

/* A barrier does not wait for lanes that have ended. */
extern "C" __global__ void __launch_bounds__(THREADS)
sync_with_the_dead(const int *x, int *out)
{
    int *shared = shared_block<int>();
    if (threadIdx.x % 32 > 15)
        return;
    store(shared + threadIdx.x, load(x + threadIdx.x));
    __syncwarp();
    store(out + threadIdx.x, load(shared + (threadIdx.x ^ 15)));
}

/* Each waits for what nobody does. */
extern "C" __global__ void __launch_bounds__(THREADS) spin(int *flag)
{
    while (load(flag) == 0)
        ;
}
extern "C" __global__ void __launch_bounds__(32) spin_at_a_barrier(int *flag)
{
    while (load(flag) == 0)
        __syncthreads();
}
extern "C" __global__ void __launch_bounds__(THREADS) spin_on_a_lock(int *flag)
{
    while (atomicCAS(flag, 1, 2) != 1)
        ;
}

/* One warp shuffles while the others are at a barrier; the last warp ends early. */
extern "C" __global__ void __launch_bounds__(THREADS)
warps_apart(const int *x, int *out)
{
    int *shared = shared_block<int>();
    int v = load(x + threadIdx.x);
    if (threadIdx.x >= 64)
        return;
    if (threadIdx.x < 32) {
        for (int by = 16; by > 0; by /= 2)
            v += __shfl_xor_sync(0xffffffffu, v, by);
        if (threadIdx.x == 0)
            store(shared, v);
    }
    __syncthreads();
    store(out + threadIdx.x, load(shared));
}

/* All shuffles and the vote, by their definitions in the CUDA guide. */
extern "C" __global__ void __launch_bounds__(THREADS)
shuffles(const int *x, int *out)
{
    const unsigned t = threadIdx.x;
    const int v = load(x + t);
    store(out + t, __shfl_sync(0xffffffffu, v, 37));
    store(out + THREADS + t, __shfl_xor_sync(0xffffffffu, v, 5));
    store(out + 2 * THREADS + t, __shfl_down_sync(0xffffffffu, v, 3));
    store(out + 3 * THREADS + t, __shfl_up_sync(0xffffffffu, v, 3));
    store(out + 4 * THREADS + t, __shfl_sync(0xffffffffu, v, 2, 8));
    store(out + 5 * THREADS + t, __shfl_down_sync(0xffffffffu, v, 3, 8));
    store(out + 6 * THREADS + t, static_cast<int>(__ballot_sync(0xffffffffu, v & 1)));
    int half = 0;
    if (t % 32 < 16)
        half = __shfl_xor_sync(0x0000ffffu, v, 15);
    store(out + 7 * THREADS + t, half);
}

extern "C" __global__ void __launch_bounds__(THREADS)
shuffle_from_outside_the_mask(int *out)
{
    if (threadIdx.x < 16)
        store(out + threadIdx.x, __shfl_sync(0x0000ffffu, 1, 20));
}
extern "C" __global__ void __launch_bounds__(THREADS)
shuffle_over_half_a_warp(int *out)
{
    if (threadIdx.x < 16)
        store(out + threadIdx.x, __shfl_xor_sync(0xffffffffu, 1, 1));
    __syncthreads();
}
extern "C" __global__ void __launch_bounds__(THREADS)
shuffle_with_the_dead(int *out)
{
    if (threadIdx.x % 32 > 15)
        return;
    store(out + threadIdx.x, __shfl_xor_sync(0xffffffffu, 1, 1));
}
extern "C" __global__ void __launch_bounds__(THREADS)
different_barriers(int *out)
{
    if (threadIdx.x < 32)
        __syncthreads();
    else
        __syncthreads();
    store(out + threadIdx.x, 1);
}

extern "C" __global__ void __launch_bounds__(THREADS)
one_too_far(const float *x, float *out, int n)
{
    const int i = static_cast<int>(threadIdx.x);
    if (i <= n)
        store(out + i, load(x + i));
}
extern "C" __global__ void __launch_bounds__(THREADS)
one_before(const float *x, float *out)
{
    store(out + threadIdx.x, load(x + threadIdx.x - 1));
}
extern "C" __global__ void __launch_bounds__(THREADS)
write_at(float *x, long long bytes, int checked)
{
    float *p = reinterpret_cast<float *>(reinterpret_cast<char *>(x) + bytes);
    if (threadIdx.x == 0 && checked)
        store(p, 1.0f);
    else if (threadIdx.x == 0)
        *p = 1.0f;
}
extern "C" __global__ void __launch_bounds__(THREADS)
write_what_is_const(const float *x)
{
    if (threadIdx.x == 0)
        store(const_cast<float *>(x), 1.0f);
}
extern "C" __global__ void __launch_bounds__(THREADS)
shift(const float *x, float *out, int n)
{
    const int i = static_cast<int>(threadIdx.x);
    const float v = i < n ? load(x + i) : 0.0f;
    __syncthreads();
    if (i < n)
        store(out + i, v);
}
extern "C" __global__ void __launch_bounds__(THREADS)
wide(const float *x, float *out)
{
    if (threadIdx.x == 0)
        store(reinterpret_cast<float4 *>(out), load(reinterpret_cast<const float4 *>(x)));
}
extern "C" __global__ void __launch_bounds__(THREADS)
over_the_shared_block(int *out)
{
    shared_block<int>()[threadIdx.x] = 1; /* unchecked */
    store(out + threadIdx.x, 1);
}
extern "C" __global__ void __launch_bounds__(THREADS)
unwritten(int *out)
{
    store(out + threadIdx.x, load(shared_block<int>() + threadIdx.x));
}

/* Sixteen bytes a thread by cp.async, two groups; which are waited for says pending. */
template <int pending, bool waits> __device__ void copied(const float4 *x, float4 *out, int n)
{
    float4 *shared = shared_block<float4>();
    const int t = static_cast<int>(threadIdx.x);
    cp_async_16(shared + t, x + t, t < n);
    cp_async_commit();
    cp_async_16(shared + THREADS + t, x + t, t < n);
    cp_async_commit();
    if (waits)
        cp_async_wait<pending>();
    __syncthreads();
    store(out + t, load(shared + THREADS - 1 - t));
    store(out + THREADS + t, load(shared + 2 * THREADS - 1 - t));
    cp_async_wait<0>();
}
extern "C" __global__ void __launch_bounds__(THREADS)
copy_async(const float4 *x, float4 *out, int n)
{
    copied<0, true>(x, out, n);
}
extern "C" __global__ void __launch_bounds__(THREADS)
copy_async_one_pending(const float4 *x, float4 *out, int n)
{
    copied<1, true>(x, out, n);
}
extern "C" __global__ void __launch_bounds__(THREADS)
copy_async_without_wait(const float4 *x, float4 *out, int n)
{
    copied<0, false>(x, out, n);
}
extern "C" __global__ void __launch_bounds__(THREADS)
copy_async_read_early(const float4 *x, float4 *out)
{
    float4 *mine = shared_block<float4>() + threadIdx.x;
    cp_async_16(mine, x + threadIdx.x, true);
    cp_async_commit();
    store(out + threadIdx.x, load(mine));
    cp_async_wait<0>();
}
extern "C" __global__ void __launch_bounds__(THREADS)
copy_async_left_behind(const float4 *x)
{
    cp_async_16(shared_block<float4>() + threadIdx.x, x + threadIdx.x, true);
}

/* Blocks are in no order; only atomics may meet. */
extern "C" __global__ void __launch_bounds__(THREADS)
blocks_write_one_place(const int *x, int *out)
{
    if (threadIdx.x == 0)
        store(out, load(x));
}
extern "C" __global__ void __launch_bounds__(THREADS)
blocks_count(const int *x, int *out)
{
    atomicAdd(out, load(x) + 1);
}
extern "C" __global__ void __launch_bounds__(THREADS)
count(int *sums, unsigned long long *most)
{
    atomicAdd(sums, 1);
    atomicMax(most, static_cast<unsigned long long>(blockIdx.x * THREADS + threadIdx.x));
    if (threadIdx.x == 0)
        store(sums + 1 + atomicAdd(sums + 5, 1), static_cast<int>(blockIdx.x));
}
extern "C" __global__ void __launch_bounds__(THREADS)
dot(const int *a, const int *b, int *out)
{
    store(out + threadIdx.x, __dp4a(load(a + threadIdx.x), load(b + threadIdx.x), -7));
}
extern "C" __global__ void __launch_bounds__(THREADS)
typed(const int *p, int i, unsigned u, long long l, unsigned long long k, float f, float *out)
{
    if (threadIdx.x == 0)
        store(out, p ? -1.0f : static_cast<float>(i) + u + static_cast<float>(l + k) + f);
}

/* Each warp: 16 rows of a through shared memory, 32 bytes each, times 8 columns of b. */
extern "C" __global__ void __launch_bounds__(THREADS)
product(const int *a, const int *b, int *c)
{
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    const int g = lane / 4, t = lane % 4;
    int *rows = shared_block<int>() + warp * 128;
    for (int i = lane; i < 128; i += 32)
        store(rows + i, load(a + warp * 128 + i));
    __syncwarp();
    int x[4], y[2], z[4];
    load_matrices(x, rows + lane % 16 * 8 + lane / 16 * 4);
    for (int i = 0; i < 2; i++)
        y[i] = load(b + warp * 64 + g * 8 + i * 4 + t);
    for (int i = 0; i < 4; i++)
        z[i] = load(c + warp * 128 + (g + i / 2 * 8) * 8 + 2 * t + i % 2);
    mma_s8(z, x, y);
    mma_s8(z, {x[0], x[1]}, y[0]);
    mma_s8(z, {x[2], x[3]}, y[1]);
    for (int i = 0; i < 4; i++)
        store(c + warp * 128 + (g + i / 2 * 8) * 8 + 2 * t + i % 2, z[i]);
}
/* Each lane's fragments as they are in its registers. */
extern "C" __global__ void __launch_bounds__(32)
product_of_fragments(const int *a, const int *b, int *c)
{
    const int lane = static_cast<int>(threadIdx.x);
    int x[4], y[2], z[4] = {};
    for (int i = 0; i < 4; i++)
        x[i] = load(a + 4 * lane + i);
    for (int i = 0; i < 2; i++)
        y[i] = load(b + 2 * lane + i);
    mma_s8(z, x, y);
    for (int i = 0; i < 4; i++)
        store(c + 4 * lane + i, z[i]);
}
extern "C" __global__ void __launch_bounds__(THREADS)
product_of_half_a_warp(int *c)
{
    int x[4] = {}, y[2] = {}, z[4] = {};
    if (threadIdx.x < 16)
        mma_s8(z, x, y);
    store(c + threadIdx.x, z[0]);
}
extern "C" __global__ void __launch_bounds__(THREADS)
matrices_of_odd_rows(int *c)
{
    int x[4];
    load_matrices(x, shared_block<int>() + threadIdx.x);
    store(c + threadIdx.x, x[0]);
}

extern "C" __global__ void __launch_bounds__(THREADS) halve(const float *x, float *out)
{
    store(out + threadIdx.x, __fmul_rn(load(x + threadIdx.x), 0.5f));
}

extern "C" __global__ void __launch_bounds__(THREADS) convert(const float *x, int *out)
{
    store(out + threadIdx.x, __float2int_rn(load(x + threadIdx.x)));
}
