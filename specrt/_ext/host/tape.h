/* A recorded step: phases run in order, the parts of one phase in any order on any thread. */
#ifndef SPECRT_TAPE_H
#define SPECRT_TAPE_H

#include "kernel.h"

#define MAX_PARTS 65535 /* of a phase */

struct phase {
    kernel_fn *run;
    void *args;
    int num_parts; /* from shapes only, never from the number of threads */
    /* By which parts find out who is the last of them; zeroed when the phase opens, since what a
     * fork met in the middle of a run never ends in the child. */
    int *counters;
    int num_counters;
};

struct tape {
    struct phase *phases;
    int num_phases;
};

/* Append a phase with a copy of its args; one without parts is left out. Returns 0, or -1 when
 * there is no memory, or when there are more than MAX_PARTS. */
int tape_append(struct tape *tape, kernel_fn *run, const void *args, size_t size, int num_parts);
/* Give the last phase counters of its own; they outlive the tape. */
void tape_count(struct tape *tape, int *counters, int num_counters);
void tape_drop_last(struct tape *tape); /* there is one */
void tape_clear(struct tape *tape);

#endif
