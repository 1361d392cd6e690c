#include "kernel.h"

int isa_detect(void)
{
#if HAVE_X86
    __builtin_cpu_init();
    int avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
               __builtin_cpu_supports("f16c") && __builtin_cpu_supports("bmi2");
    int avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                 __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                 __builtin_cpu_supports("avx512vnni");
    return avx2 && avx512 ? ISA_AVX512 : avx2 ? ISA_AVX2 : ISA_PORTABLE;
#else
    return ISA_PORTABLE;
#endif
}
