/* How a host kernel is named, declared and chosen.
 *
 * Every file in kernels/ is compiled once per instruction set (ISA is portable, avx2 or avx512) and
 * defines KERNEL(op). Outside, DECLARE_KERNEL(op) declares all forms and SELECT_KERNEL(op, level)
 * picks one. All forms of one op give the same bits.
 */
#ifndef SPECRT_KERNEL_H
#define SPECRT_KERNEL_H

#include <stddef.h>
#include <stdint.h>

/* One part of one op: args is the op's own struct, scratch this thread's scratch memory (64-byte
 * aligned, as many bytes as the op asked for when it was recorded). */
typedef void kernel_fn(const void *args, int part, void *scratch);

enum isa_level { ISA_PORTABLE = 0, ISA_AVX2 = 1, ISA_AVX512 = 2 };

/* The highest level of which this machine has every instruction that setup.py compiles with. */
int isa_detect(void);

#define KERNEL_JOIN_(op, isa) specrt_##op##_##isa
#define KERNEL_JOIN(op, isa) KERNEL_JOIN_(op, isa)
#define KERNEL(op) KERNEL_JOIN(op, ISA)

#if HAVE_X86
#define DECLARE_KERNEL(op) \
    extern kernel_fn specrt_##op##_portable, specrt_##op##_avx2, specrt_##op##_avx512
#define SELECT_KERNEL(op, level)                       \
    ((level) == ISA_AVX512 ? specrt_##op##_avx512      \
     : (level) == ISA_AVX2 ? specrt_##op##_avx2        \
                           : specrt_##op##_portable)
#else
#define DECLARE_KERNEL(op) extern kernel_fn specrt_##op##_portable
#define SELECT_KERNEL(op, level) specrt_##op##_portable
#endif

#endif
