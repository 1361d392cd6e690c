#ifndef SPECRT_SCALE_H
#define SPECRT_SCALE_H

#include "kernel.h"

#define SCALE_BLOCK 4096 /* values of a part */

struct scale_args {
    const float *x, *add; /* [count], the latter may be NULL */
    float *out;           /* may be x or add */
    size_t count;
    float factor;
};

DECLARE_KERNEL(scale);

#endif
