#ifndef SPECRT_ROUTE_H
#define SPECRT_ROUTE_H

#include "kernel.h"

struct route_args { /* a part is one row */
    const float *logits; /* [T, num_experts] */
    int32_t *ids;        /* [T, num_used] */
    float *weights;
    int num_experts, num_used;
};

DECLARE_KERNEL(route);

#endif
