#ifndef SPECRT_SELECT_H
#define SPECRT_SELECT_H

#include "kernel.h"

struct select_args { /* a part is one row of out */
    const char *x;
    const int32_t *index;
    char *out;
    ptrdiff_t x_stride, out_stride; /* bytes from row to row */
    size_t row_bytes;
    int num_rows; /* of x */
};

DECLARE_KERNEL(select);

#endif
