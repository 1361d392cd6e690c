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

struct team {
    /* Number of the open phase << 32 | its parts that nobody has claimed. Phases are numbered on
     * through all runs, so a word read long ago cannot be mistaken for a new one. */
    _Alignas(64) _Atomic uint64_t claim;
    _Alignas(64) _Atomic int num_finished; /* parts of the open phase */
    /* Read by holders of a part and by the caller: a run cannot end while one is held. */
    _Alignas(64) const struct tape *tape;
    uint32_t first_phase, end_phase;
    int64_t *ends, start_ns; /* NULL: nobody asks */

    _Atomic int num_threads;
    _Atomic bool stop;
    _Atomic int num_asleep[NUM_ROLES];
    pthread_mutex_t sleep_lock;
    pthread_cond_t wake[NUM_ROLES];

    pthread_mutex_t run_lock; /* guards what follows */
    pid_t pid;
    int num_helpers, num_members; /* threads made; the most threads ever asked for */
    size_t scratch_bytes, shared_bytes;
    void *shared;
    struct member members[MAX_THREADS];
};

static uint32_t phase_of(uint64_t word) { return (uint32_t)(word >> 32); }
static uint32_t parts_left(uint64_t word) { return (uint32_t)word; }

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

/* Open the tape's phase, or end the run behind the last one. The caller of this claims a part itself
 * at once, so a single part wakes nobody. */
static void open_phase(struct team *team, int index)
{
    const struct tape *tape = team->tape;
    int num_parts = index < tape->num_phases ? tape->phases[index].num_parts : 0;
    if (team->ends && index > 0)
        team->ends[index - 1] = now_ns() - team->start_ns;
    uint64_t number = team->first_phase + (uint32_t)index;
    atomic_store_explicit(&team->num_finished, 0, memory_order_relaxed);
    /* Sequentially consistent with the count of sleepers: either it is seen here, or the sleeper
     * sees the new word. From here on tape may be gone. */
    atomic_store(&team->claim, (number & UINT32_MAX) << 32 | (uint32_t)num_parts);
    if (num_parts > 1 && atomic_load(&team->num_asleep[HELPER]))
        wake(team, HELPER);
    if (num_parts != 1 && atomic_load(&team->num_asleep[CALLER]))
        wake(team, CALLER);
}

/* Claim and run parts until the open phase has none left. */
static void work(struct team *team, const struct member *member)
{
    uint64_t word = atomic_load_explicit(&team->claim, memory_order_acquire);
    while (parts_left(word)) {
        if (!atomic_compare_exchange_weak_explicit(&team->claim, &word, word - 1,
                                                   memory_order_acq_rel, memory_order_acquire))
            continue;
        int index = (int)(phase_of(word) - team->first_phase);
        const struct phase *phase = &team->tape->phases[index];
        int num_parts = phase->num_parts;
        phase->run(phase->args, num_parts - (int)parts_left(word), member->scratch);
        if (atomic_fetch_add_explicit(&team->num_finished, 1, memory_order_acq_rel) + 1 == num_parts)
            open_phase(team, index + 1);
        word = atomic_load_explicit(&team->claim, memory_order_acquire);
    }
}

/* Whether this thread has something to do. */
static bool ready(struct team *team, int index)
{
    uint64_t word = atomic_load(&team->claim);
    if (parts_left(word) && index < atomic_load(&team->num_threads))
        return true;
    return index == 0 ? phase_of(word) == team->end_phase : atomic_load(&team->stop);
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
static void rest(struct team *team, int index)
{
    enum role role = index ? HELPER : CALLER;
    int64_t deadline = now_ns() + SPIN_NS;
    do
        for (int i = 0; i < 16; i++) {
            if (ready(team, index))
                return;
            pause_cpu();
        }
    while (now_ns() < deadline);

    pthread_mutex_lock(&team->sleep_lock);
    for (bool awake = false; !awake;) {
        /* A helper above the number of threads is not counted: no phase wakes it. */
        int counted = index < atomic_load(&team->num_threads);
        atomic_fetch_add(&team->num_asleep[role], counted);
        awake = ready(team, index);
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
    while (!atomic_load(&team->stop)) {
        rest(team, member->index);
        work(team, member);
    }
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
    uint64_t word = atomic_load(&team->claim);
    atomic_store(&team->claim, word - parts_left(word));
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
    team->first_phase = phase_of(atomic_load(&team->claim)) + 1;
    team->end_phase = team->first_phase + (uint32_t)tape->num_phases;
    open_phase(team, 0);
    for (;;) {
        work(team, &team->members[0]);
        if (phase_of(atomic_load(&team->claim)) == team->end_phase)
            break;
        rest(team, 0);
    }
    fesetenv(&before);
    pthread_mutex_unlock(&team->run_lock);
}

int team_threads(const struct team *team) { return atomic_load(&team->num_threads); }
void *const *team_shared(const struct team *team) { return &team->shared; }
