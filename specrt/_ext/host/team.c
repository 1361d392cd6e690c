#include "team.h"

#include <fenv.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum role { CALLER, HELPER, NUM_ROLES };

struct member {
    struct team *team;
    int index;
    pthread_t thread;
    void *scratch;
};

/* A share of a phase's parts: the phase's number << 32 | first << 16 | end of those that nobody has
 * claimed. Phases are numbered on through all runs, so a word read long ago cannot be mistaken for a
 * new one. */
struct share {
    _Alignas(64) _Atomic uint64_t word;
};

struct team {
    struct share shares[MAX_THREADS];
    _Alignas(64) _Atomic int num_finished; /* parts of the open phase */
    /* Read by holders of a part and by the caller: a run cannot end while one is held. */
    _Alignas(64) const struct tape *tape;
    uint32_t first_phase, end_phase;
    int64_t *ends, start_ns; /* NULL: nobody asks */

    _Atomic int num_threads;
    _Atomic bool stop;
    _Atomic int num_asleep[NUM_ROLES];
    _Atomic uint32_t num_calls; /* of team_call */
    pthread_mutex_t sleep_lock;
    pthread_cond_t wake[NUM_ROLES];

    pthread_mutex_t run_lock; /* guards what follows */
    pid_t pid;
    int num_helpers, num_members; /* threads made; the most threads ever asked for */
    size_t scratch_bytes, shared_bytes;
    void *shared;
    struct member members[MAX_THREADS];
};

static uint64_t share_of(uint32_t phase, int first, int end)
{
    return (uint64_t)phase << 32 | (uint64_t)first << 16 | (uint64_t)end;
}
static uint32_t phase_of(uint64_t share) { return (uint32_t)(share >> 32); }
static int first_of(uint64_t share) { return (int)(share >> 16 & 0xffff); }
static int end_of(uint64_t share) { return (int)(share & 0xffff); }

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void wake(struct team *team, enum role role)
{
    pthread_mutex_lock(&team->sleep_lock);
    pthread_cond_broadcast(&team->wake[role]);
    pthread_mutex_unlock(&team->sleep_lock);
}

/* Note that the tape's phase of that number has ended. */
static void note_end(struct team *team, int index)
{
    if (team->ends)
        team->ends[index] = now_ns() - team->start_ns;
}

static void clear_counters(const struct phase *phase)
{
    for (int i = 0; i < phase->num_counters; i++)
        phase->counters[i] = 0;
}

/* Give each thread its share of a phase of two parts or more. The last share has a part always, so
 * the phase cannot end, and nobody can write the shares of the next one, before all are written. */
static void share_out(struct team *team, const struct phase *phase, uint32_t number)
{
    const int num_parts = phase->num_parts;
    const int num_shares = atomic_load_explicit(&team->num_threads, memory_order_relaxed);
    clear_counters(phase);
    atomic_store_explicit(&team->num_finished, 0, memory_order_relaxed);
    for (int i = 0, first = 0; i < num_shares; i++) {
        const int end = (int)((int64_t)num_parts * (i + 1) / num_shares);
        atomic_store_explicit(&team->shares[i].word, share_of(number, first, end),
                              memory_order_release);
        first = end;
    }
    /* Who goes to sleep at this very moment may be missed: then the others have its parts, and the
     * next phase wakes it. */
    for (int role = 0; role < NUM_ROLES; role++)
        if (atomic_load_explicit(&team->num_asleep[role], memory_order_relaxed))
            wake(team, role);
}

/* Open the tape's phase of that number, or end the run behind the last one. A phase of one part is
 * run here, which takes less time than to hand it on. */
static void open_phase(struct team *team, const struct member *member, int index)
{
    const struct tape *tape = team->tape;
    for (; index < tape->num_phases && tape->phases[index].num_parts == 1; index++) {
        clear_counters(&tape->phases[index]);
        tape->phases[index].run(tape->phases[index].args, 0, member->scratch);
        note_end(team, index);
    }
    if (index < tape->num_phases) {
        share_out(team, &tape->phases[index], team->first_phase + (uint32_t)index);
        return;
    }
    /* Sequentially consistent with the count of sleepers: either the caller is seen to sleep, or it
     * sees the end. From here on tape may be gone. */
    atomic_store(&team->shares[0].word, share_of(team->end_phase, 0, 0));
    if (atomic_load(&team->num_asleep[CALLER]))
        wake(team, CALLER);
}

/* Claim and run parts of an open phase's share until it has none left: the owner from the front on,
 * so that it reads memory in one stream, others from the back. */
static void work_on(struct team *team, const struct member *member, int owner, uint32_t open)
{
    _Atomic uint64_t *word = &team->shares[owner].word;
    const int own = owner == member->index;
    const struct phase *phase = NULL;
    int num_run = 0;
    uint64_t share = atomic_load_explicit(word, memory_order_acquire);
    while (phase_of(share) == open && first_of(share) < end_of(share)) {
        const int part = own ? first_of(share) : end_of(share) - 1;
        const uint64_t rest = share_of(open, first_of(share) + own, end_of(share) - !own);
        if (!atomic_compare_exchange_weak_explicit(word, &share, rest, memory_order_acq_rel,
                                                   memory_order_acquire))
            continue;
        phase = &team->tape->phases[open - team->first_phase];
        phase->run(phase->args, part, member->scratch);
        num_run++;
        share = atomic_load_explicit(word, memory_order_acquire);
    }
    if (!num_run)
        return;
    /* Until its parts are counted the phase goes on, and with it the tape. */
    const int num_parts = phase->num_parts, index = (int)(open - team->first_phase);
    if (atomic_fetch_add_explicit(&team->num_finished, num_run, memory_order_acq_rel) + num_run
        == num_parts) {
        note_end(team, index);
        open_phase(team, member, index + 1);
    }
}

static uint32_t open_to(struct team *team, int index)
{
    return phase_of(atomic_load(&team->shares[index].word));
}

/* Run parts of the phase that is open to this thread until it has none left; returns its number. */
static uint32_t work(struct team *team, const struct member *member)
{
    const uint32_t open = open_to(team, member->index);
    const int num_threads = atomic_load(&team->num_threads);
    for (int i = 0; member->index < num_threads && i < num_threads; i++)
        work_on(team, member, (member->index + i) % num_threads, open);
    return open;
}

/* Whether this thread has something to do, having done all it could of a phase. */
static bool ready(struct team *team, int index, uint32_t done)
{
    if (index < atomic_load(&team->num_threads) && open_to(team, index) != done)
        return true;
    return index > 0 && atomic_load(&team->stop);
}

static void pause_cpu(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Spin, then sleep, until this thread is ready. */
static void rest(struct team *team, int index, uint32_t done)
{
    const enum role role = index ? HELPER : CALLER;
    const int64_t deadline = now_ns() + SPIN_NS;
    const uint32_t num_calls = atomic_load(&team->num_calls);
    do
        for (int i = 0; i < 16; i++) {
            if (ready(team, index, done))
                return;
            pause_cpu();
        }
    while (now_ns() < deadline);

    pthread_mutex_lock(&team->sleep_lock);
    for (bool awake = false; !awake;) {
        /* A helper above the number of threads is not counted: no phase wakes it. */
        int counted = index < atomic_load(&team->num_threads);
        atomic_fetch_add(&team->num_asleep[role], counted);
        awake = ready(team, index, done) || atomic_load(&team->num_calls) != num_calls;
        if (!awake)
            pthread_cond_wait(&team->wake[role], &team->sleep_lock);
        atomic_fetch_sub(&team->num_asleep[role], counted);
    }
    pthread_mutex_unlock(&team->sleep_lock);
}

static void *helper(void *argument)
{
    struct member *member = argument;
    struct team *team = member->team;
    fesetenv(FE_DFL_ENV);
    while (!atomic_load(&team->stop))
        rest(team, member->index, work(team, member));
    return NULL;
}

/* Too few threads cost speed and nothing else, so a failure here is none. */
static void make_helpers(struct team *team)
{
    int wanted = atomic_load(&team->num_threads) - 1;
    if (team->num_helpers >= wanted)
        return;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (; team->num_helpers < wanted; team->num_helpers++) {
        struct member *member = &team->members[team->num_helpers + 1];
        if (pthread_create(&member->thread, NULL, helper, member))
            break;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* Locks, threads and an open phase as in a new team. */
static void reset(struct team *team)
{
    pthread_mutex_init(&team->run_lock, NULL);
    pthread_mutex_init(&team->sleep_lock, NULL);
    for (int role = 0; role < NUM_ROLES; role++) {
        pthread_cond_init(&team->wake[role], NULL);
        atomic_store(&team->num_asleep[role], 0);
    }
    for (int i = 0; i < MAX_THREADS; i++)
        atomic_store(&team->shares[i].word, 0);
    team->num_helpers = 0;
    team->pid = getpid();
}

/* A forked child has no helpers, and locks in whatever state the fork met them. */
static void lock_for_run(struct team *team)
{
    if (team->pid != getpid())
        reset(team);
    pthread_mutex_lock(&team->run_lock);
}

struct team *team_create(void)
{
    struct team *team = aligned_alloc(64, (sizeof *team + 63) / 64 * 64);
    if (!team)
        return NULL;
    *team = (struct team){.num_threads = 1, .num_members = 1};
    for (int i = 0; i < MAX_THREADS; i++)
        team->members[i] = (struct member){.team = team, .index = i};
    reset(team);
    return team;
}

void team_destroy(struct team *team)
{
    if (!team)
        return;
    if (team->pid == getpid()) {
        atomic_store(&team->stop, true);
        wake(team, HELPER);
        for (int i = 1; i <= team->num_helpers; i++)
            pthread_join(team->members[i].thread, NULL);
    }
    for (int i = 0; i < team->num_members; i++)
        free(team->members[i].scratch);
    free(team->shared);
    free(team);
}

static int replace(void **memory, size_t bytes)
{
    void *larger = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!larger)
        return -1;
    free(*memory);
    *memory = larger;
    return 0;
}

int team_set_threads(struct team *team, int num_threads)
{
    lock_for_run(team);
    int failed = 0;
    while (team->scratch_bytes && team->num_members < num_threads && !failed) {
        failed = replace(&team->members[team->num_members].scratch, team->scratch_bytes);
        team->num_members += !failed;
    }
    if (!failed) {
        if (team->num_members < num_threads)
            team->num_members = num_threads;
        atomic_store(&team->num_threads, num_threads);
        wake(team, HELPER); /* so that each counts itself anew */
    }
    pthread_mutex_unlock(&team->run_lock);
    return failed;
}

int team_reserve(struct team *team, size_t scratch_bytes, size_t shared_bytes)
{
    lock_for_run(team);
    int failed = 0;
    if (scratch_bytes > team->scratch_bytes) {
        for (int i = 0; i < team->num_members && !failed; i++)
            failed = replace(&team->members[i].scratch, scratch_bytes);
        if (!failed)
            team->scratch_bytes = scratch_bytes;
    }
    if (shared_bytes > team->shared_bytes && !failed) {
        failed = replace(&team->shared, shared_bytes);
        if (!failed)
            team->shared_bytes = shared_bytes;
    }
    pthread_mutex_unlock(&team->run_lock);
    return failed;
}

void team_run(struct team *team, const struct tape *tape, int64_t *ends)
{
    if (tape->num_phases == 0)
        return;
    fenv_t before;
    lock_for_run(team);
    make_helpers(team);
    fegetenv(&before);
    fesetenv(FE_DFL_ENV);
    team->tape = tape;
    team->ends = ends;
    team->start_ns = ends ? now_ns() : 0;
    team->first_phase = team->end_phase + 1;
    team->end_phase = team->first_phase + (uint32_t)tape->num_phases;
    open_phase(team, &team->members[0], 0);
    for (uint32_t done; (done = work(team, &team->members[0])) != team->end_phase;)
        rest(team, 0, done);
    fesetenv(&before);
    pthread_mutex_unlock(&team->run_lock);
}

void team_call(struct team *team)
{
    if (team->pid != getpid() || !atomic_load(&team->num_asleep[HELPER]))
        return;
    atomic_fetch_add(&team->num_calls, 1);
    wake(team, HELPER);
}

int team_threads(const struct team *team) { return atomic_load(&team->num_threads); }
void *const *team_shared(const struct team *team) { return &team->shared; }
