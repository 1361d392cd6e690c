/* A recorded step: phases run in order, the parts of one phase in any order on any thread. */
#ifndef SPECRT_TAPE_H
#define SPECRT_TAPE_H

#include "kernel.h"

struct phase {
    kernel_fn *run;
    const void *args;
    int num_parts; /* from shapes only, never from the number of threads */
};

struct tape {
    struct phase *phases;
    int num_phases;
    size_t scratch_bytes; /* the largest that a phase asked for */
};

#endif
