/* act(gate) * up, for glu alone and for the product that gates its own results. */
#ifndef SPECRT_GATE_H
#define SPECRT_GATE_H

#include "glu.h"
#include "simd.h"

static inline v16f silu(v16f g)
{
    v16f e = v16f_exp(v16f_sub(v16f_set1(0.0f), g));
    return v16f_div(g, v16f_add(v16f_set1(1.0f), e));
}

static inline v16f gelu_tanh(v16f g)
{
    v16f cubic = v16f_fma(v16f_set1(0.044715f), v16f_mul(g, g), v16f_set1(1.0f));
    v16f t = v16f_tanh(v16f_mul(v16f_mul(v16f_set1(0.79788456f), g), cubic));
    return v16f_mul(v16f_mul(v16f_set1(0.5f), g), v16f_add(v16f_set1(1.0f), t));
}

static inline v16f sigmoid(v16f g)
{
    v16f e = v16f_exp(v16f_sub(v16f_set1(0.0f), g));
    return v16f_div(v16f_set1(1.0f), v16f_add(v16f_set1(1.0f), e));
}

static inline v16f gate(int activation, v16f g, v16f up)
{
    switch (activation) {
    case ACT_SILU:
        return v16f_mul(silu(g), up);
    case ACT_GELU_TANH:
        return v16f_mul(gelu_tanh(g), up);
    default:
        return v16f_mul(sigmoid(g), up);
    }
}

#endif
