#ifndef SPECRT_COPY_H
#define SPECRT_COPY_H

#include "kernel.h"

struct copy_args { /* a part is one row */
    const char *x;
    char *out;
    ptrdiff_t x_stride, out_stride; /* bytes from row to row */
    size_t row_bytes;
};

DECLARE_KERNEL(copy);

#endif
