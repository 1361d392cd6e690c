/* What is asked of the device in words of our own; the emulator has its own form of this file.
 *
 * Kernels reach memory through load and store only, so that the emulator can hold every access to
 * alignment and bounds. The float arithmetic of kernels is __fmaf_rn, __fmul_rn, __fadd_rn,
 * __fsub_rn, __fdiv_rn and __fsqrt_rn: one rounding each, whatever the compiler's options.
 */

/* A T from global or shared memory, in one access of sizeof(T) bytes (16 for float4). */
template <class T> __device__ __forceinline__ T load(const T *p) { return *p; }

/* The same way back. */
template <class T> __device__ __forceinline__ void store(T *p, T value) { *p = value; }

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
