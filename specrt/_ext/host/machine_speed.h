#ifndef SPECRT_MACHINE_SPEED_H
#define SPECRT_MACHINE_SPEED_H

#include "kernel.h"

#define MULTIPLY_CHAINS 12 /* that do not wait for each other, each of one register */

struct read_memory_args { /* a part is part_bytes of the memory, the last one the rest */
    const char *memory;   /* 64-byte aligned */
    uint64_t *sums;       /* of the 8-byte words of each part */
    size_t num_bytes, part_bytes; /* multiples of 512 */
};

struct multiply_args { /* a part is that many multiply-adds in each chain and lane */
    int64_t steps;
    uint32_t *ends; /* a word per part, of what was computed */
};

DECLARE_KERNEL(read_memory);
DECLARE_KERNEL(multiply_ints);
DECLARE_KERNEL(multiply_floats);

#endif
