#ifndef SPECRT_GLU_H
#define SPECRT_GLU_H

#include "kernel.h"

#define GLU_BLOCK 4096 /* values of a part */

enum activation { ACT_SILU, ACT_GELU_TANH };

struct glu_args {
    const float *gate, *up;
    float *out; /* may be gate or up */
    size_t count;
    int activation;
};

DECLARE_KERNEL(glu);

#endif
