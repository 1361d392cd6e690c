#ifndef SPECRT_GLU_H
#define SPECRT_GLU_H

#include "linear.h"

#define GLU_BLOCK 2048 /* values of a part; blocks of 32 */
#define GATED_TILES 2  /* of a part, so that it makes whole blocks of 32 */

enum activation { ACT_SILU, ACT_GELU_TANH, ACT_SIGMOID };

struct glu_args {
    const float *gate, *up; /* [T, width] */
    float *out;             /* or NULL; may be gate or up */
    struct acts acts;       /* of out; without forms there are none */
    int width, activation;
};

/* The products of a linear with two matrices of equal height, gated and prepared for the next. */
struct gated_linear_args {
    struct weight sides[2]; /* gate and up */
    struct acts acts, out;
    int activation;
};

DECLARE_KERNEL(glu);
DECLARE_KERNEL(gated_linear);

#endif
