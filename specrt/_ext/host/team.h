/* A team of threads that runs tapes, one at a time.
 *
 * A phase's parts are cut into a share for each thread, so that each reads memory in one stream, and
 * claimed from the share's atomic word: by its owner from the front, by who has nothing left to do
 * from the back. The word has the phase's number too, so a thread learns of a phase and of its share
 * by one cache line. Whoever finishes a phase's last part opens the next one, so a thread that was
 * descheduled without a part delays nobody, and one that wakes late finds the words changed. Phases
 * of one part are run by whoever would open them.
 *
 * A thread without work spins for SPIN_NS, which is longer than a step takes between two runs (one
 * that sleeps comes 20 us late), and then sleeps. The caller is thread 0; helpers are made by the
 * first run that may use them, and again in a forked child. They block all signals. Every thread runs
 * in the default floating-point environment; the caller gets its own back.
 */
#ifndef SPECRT_TEAM_H
#define SPECRT_TEAM_H

#include "tape.h"

#define MAX_THREADS 256
#define SPIN_NS 100000

struct team;

struct team *team_create(void); /* of one thread; NULL when there is no memory */
void team_destroy(struct team *team);

/* These three wait for a run in another thread to end; the first two return 0, or -1 when there is
 * no memory. Scratch is 64-byte aligned and never grown inside a run. */
int team_set_threads(struct team *team, int num_threads);
int team_reserve(struct team *team, size_t scratch_bytes, size_t shared_bytes);
/* With ends, [phases] nanoseconds, also tells when each phase ended; the run begins at 0. */
void team_run(struct team *team, const struct tape *tape, int64_t *ends);

/* Wake helpers, which spin for a run that begins soon; they sleep again if none does. */
void team_call(struct team *team);

int team_threads(const struct team *team);
/* Where the address of the memory stands that all threads share during a run; what a phase leaves
 * there only the same tape's next phases may read. */
void *const *team_shared(const struct team *team);

#endif
