#include "tape.h"

#include <stdlib.h>
#include <string.h>

int tape_append(struct tape *tape, kernel_fn *run, const void *args, size_t size, int num_parts)
{
    if (num_parts <= 0)
        return 0;
    if (num_parts > MAX_PARTS)
        return -1;
    size_t room = ((size_t)tape->num_phases + 1) * sizeof(struct phase);
    struct phase *phases = realloc(tape->phases, room);
    if (!phases)
        return -1;
    tape->phases = phases;
    void *copy = malloc(size);
    if (!copy)
        return -1;
    memcpy(copy, args, size);
    phases[tape->num_phases++] = (struct phase){.run = run, .args = copy, .num_parts = num_parts};
    return 0;
}

void tape_count(struct tape *tape, int *counters, int num_counters)
{
    struct phase *last = &tape->phases[tape->num_phases - 1];
    last->counters = counters;
    last->num_counters = num_counters;
}

void tape_drop_last(struct tape *tape)
{
    free(tape->phases[--tape->num_phases].args);
}

void tape_clear(struct tape *tape)
{
    for (int i = 0; i < tape->num_phases; i++)
        free(tape->phases[i].args);
    free(tape->phases);
    *tape = (struct tape){0};
}
