/* Logits as integers that order as head orders them: the larger value first, then the lower id. */
#include "common.cuh"

/* NaN counts as -inf. */
__device__ __forceinline__ unsigned long long key_of(float value, int id)
{
    const float x = value != value ? __int_as_float(static_cast<int>(0xff800000u))
                                   : __fadd_rn(value, 0.0f); /* no -0 */
    const unsigned bits = static_cast<unsigned>(__float_as_int(x));
    const unsigned ordered = bits >> 31 ? ~bits : bits | 0x80000000u;
    return static_cast<unsigned long long>(ordered) << 32 | (0xffffffffu - static_cast<unsigned>(id));
}

__device__ __forceinline__ int id_of(unsigned long long key)
{
    return static_cast<int>(0xffffffffu - static_cast<unsigned>(key));
}
