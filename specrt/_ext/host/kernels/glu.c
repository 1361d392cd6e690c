/* glu: a part is GLU_BLOCK values; specrt/reference/glu.py says what it computes. */
#include "glu.h"
#include "quantize.h"

static v16f silu(v16f g)
{
    v16f e = v16f_exp(v16f_sub(v16f_set1(0.0f), g));
    return v16f_div(g, v16f_add(v16f_set1(1.0f), e));
}

static v16f gelu_tanh(v16f g)
{
    v16f cubic = v16f_fma(v16f_set1(0.044715f), v16f_mul(g, g), v16f_set1(1.0f));
    v16f t = v16f_tanh(v16f_mul(v16f_mul(v16f_set1(0.79788456f), g), cubic));
    return v16f_mul(v16f_mul(v16f_set1(0.5f), g), v16f_add(v16f_set1(1.0f), t));
}

void KERNEL(glu)(const void *pointer, int part, void *scratch)
{
    const struct glu_args *args = pointer;
    const size_t start = (size_t)part * GLU_BLOCK, left = args->count - start;
    const size_t count = left < GLU_BLOCK ? left : GLU_BLOCK;
    const float *gate = args->gate + start, *up = args->up + start;
    float *out = args->out ? args->out + start : scratch;
    for (size_t i = 0; i < count; i += LANES) {
        int n = count - i < LANES ? (int)(count - i) : LANES;
        v16f g = v16f_load_n(gate + i, n);
        v16f a = args->activation == ACT_SILU ? silu(g) : gelu_tanh(g);
        v16f_store_n(out + i, v16f_mul(a, v16f_load_n(up + i, n)), n);
    }
    quantize_values(out, start, count, &args->acts);
}
