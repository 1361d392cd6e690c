#ifndef SPECRT_RMS_NORM_H
#define SPECRT_RMS_NORM_H

#include "linear.h"

struct rms_norm_args {
    const float *x, *weight, *add; /* [T, width], [width] or NULL, [T, width] or NULL */
    float *out;                    /* [T, width] or NULL; may be x or add */
    struct acts acts;              /* of out; without forms there are none */
    struct row_parts parts;
    float eps;
};

DECLARE_KERNEL(rms_norm);

#endif
