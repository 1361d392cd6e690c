/* What is asked of the device in words of our own; the emulator has its own form of this file.
 *
 * Kernels reach memory through load and store only, so that the emulator can hold every access to
 * alignment and bounds. The float arithmetic of kernels is __fmaf_rn, __fmul_rn, __fadd_rn,
 * __fsub_rn, __fdiv_rn and __fsqrt_rn: one rounding each, whatever the compiler's options, but that
 * CuPy always adds -ftz=true: on a GPU subnormal numbers are zeros.
 */

/* A T from global or shared memory, in one access of sizeof(T) bytes (16 for float4). */
template <class T> __device__ __forceinline__ T load(const T *p) { return *p; }

/* The same way back. */
template <class T> __device__ __forceinline__ void store(T *p, T value) { *p = value; }

/* The float that a half's bits stand for: exact, subnormal halves too; NaN for NaN. */
__device__ __forceinline__ float half_bits_to_float(unsigned short bits)
{
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
    return x;
}

/* The way back, to nearest even: subnormal halves are kept, infinity from 65520 on, 0x7fff for
 * NaN. */
__device__ __forceinline__ unsigned short float_to_half_bits(float x)
{
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}

/* The dynamic shared block, aligned to 16 bytes: a kernel has no other shared memory. */
template <class T> __device__ __forceinline__ T *shared_block()
{
    extern __shared__ __align__(16) unsigned char specrt_shared[];
    return reinterpret_cast<T *>(specrt_shared);
}

/* Start copying 16 bytes from global to shared memory, or zeros unless they are there. They are in
 * place for this thread after the wait for their group, for others after a barrier behind it.
 * Before sm_80 the copy is done at once. */
__device__ __forceinline__ void cp_async_16(void *to, const void *from, bool there)
{
#if __CUDA_ARCH__ >= 800
    unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(to));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from),
                 "r"(there ? 16 : 0)
                 : "memory");
#else
    *static_cast<uint4 *>(to) =
        there ? *static_cast<const uint4 *>(from) : make_uint4(0, 0, 0, 0);
#endif
}

/* Close the group of copies that this thread started since the last one. */
__device__ __forceinline__ void cp_async_commit()
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

/* Wait for all closed groups but the last num_pending. */
template <int num_pending> __device__ __forceinline__ void cp_async_wait()
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(num_pending) : "memory");
#endif
}

/* c += a b for the 32 lanes of a warp, all of which are there: a is 16 x 32 and b 32 x 8 int8, c is
 * 16 x 8 int32. With g = lane / 4 and t = lane % 4, four bytes in an int:
 *   a[0], a[1]: columns 4 t .. 4 t + 3 of rows g and g + 8; a[2], a[3]: the same 16 columns on,
 *   b[0], b[1]: rows 4 t .. 4 t + 3, and 16 rows on, of column g,
 *   c[0], c[1]: columns 2 t and 2 t + 1 of row g; c[2], c[3]: of row g + 8. */
__device__ __forceinline__ void mma_s8(int (&c)[4], const int (&a)[4], const int (&b)[2])
{
#if __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
                 : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(c[0]),
                   "r"(c[1]), "r"(c[2]), "r"(c[3]));
#else
    for (int i = 0; i < 4; i++) /* halves of the rows and of the columns of a */
        asm volatile("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 "
                     "{%0, %1}, {%2}, {%3}, {%0, %1};"
                     : "+r"(c[i % 2 * 2]), "+r"(c[i % 2 * 2 + 1])
                     : "r"(a[i]), "r"(b[i / 2]));
#endif
}

/* The same of 16 columns of a: a[0], a[1] and b as a[0], a[1] and b[0] above. */
__device__ __forceinline__ void mma_s8(int (&c)[4], const int (&a)[2], int b)
{
#if __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 "
                 "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %8, %9, %10};"
                 : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(b), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]));
#else
    for (int i = 0; i < 2; i++)
        asm volatile("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 "
                     "{%0, %1}, {%2}, {%3}, {%0, %1};"
                     : "+r"(c[2 * i]), "+r"(c[2 * i + 1])
                     : "r"(a[i]), "r"(b));
#endif
}

/* Four 8 x 8 matrices of 16 bits from shared memory: lane i names row i % 8 of matrix i / 8, 16
 * bytes; to[m] holds bytes 4 t .. 4 t + 3 of row g of matrix m, with g and t as above. */
__device__ __forceinline__ void load_matrices(int (&to)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(static_cast<unsigned>(__cvta_generic_to_shared(row)))
                 : "memory");
}
