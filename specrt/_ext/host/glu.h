#ifndef SPECRT_GLU_H
#define SPECRT_GLU_H

#include "linear.h"

#define GLU_BLOCK 4096 /* values of a part; blocks of 32 */

enum activation { ACT_SILU, ACT_GELU_TANH };

struct glu_args {
    const float *gate, *up;
    float *out;       /* or NULL; may be gate or up */
    struct acts acts; /* of out; without forms there are none */
    size_t count;
    int activation;
};

DECLARE_KERNEL(glu);

#endif
