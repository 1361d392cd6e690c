/* The machine under a kernel: blocks one after another, the threads of a block as fibres.
 *
 * A thread runs until it waits or ends; then another that may run does, chosen by the seed, as the
 * order of blocks is. A block barrier opens when all live threads of the block wait at it; a warp
 * operation when all threads of its mask do. If nobody may run, or those who meet do not agree on
 * where or for whom, the launch fails and names the lines. Shared memory starts as 0xff (NaN, -1)
 * between guards; arrays lie far apart, each between guards of its own (arrays.h). What it cannot
 * show: memory order between blocks, registers that were never written, bank conflicts, speed. A
 * thread that spins lets nobody run, so blocks cannot wait for each other: it fails when its
 * accesses or meetings are used up.
 */
#include "fibre.h"
#include "sanitizer.h"

#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <vector>

struct uint3 { unsigned x, y, z; };
static uint3 threadIdx, blockIdx, blockDim, gridDim;

namespace emulator {

constexpr unsigned WARP = 32, GUARD = 256;
constexpr unsigned char POISON = 0xff, CANARY = 0xa5;
/* What a thread may do: accesses between two meetings with others, meetings in its life. */
constexpr unsigned MOST_ACCESSES = 1 << 24, MOST_MEETINGS = 1 << 20;

struct Place { const char *file; int line; };

inline bool same(Place a, Place b)
{
    return a.line == b.line && (a.file == b.file || !strcmp(a.file, b.file));
}

/* Where an argument's items lie: rows of row_bytes, pitch bytes from one to the next. Python
 * (specrt/kernels/emulator/__init__.py) passes this and Launch in this layout. */
struct Array {
    char *start;
    int64_t bytes, pitch, row_bytes;
    int64_t arg;      /* its number among the arguments */
    int64_t writable; /* for the machine: the parameter points to what is not const */
};

struct Launch {
    uint3 grid, block;
    uint64_t shared_bytes, seed;
    int32_t flush; /* subnormal numbers are zeros, as CuPy compiles */
    int32_t num_arrays;
};

/* What a lane brings to a product of matrices. */
struct Fragments { int a[4], b[2]; };

struct Copy { char *to; const char *from; size_t bytes; };

enum class State { runnable, block_barrier, warp_operation, ended };

struct Fibre {
    void *stack_pointer;
    void *watched; /* what the sanitiser knows it by */
    State state;
    Place at;
    uint3 index;
    unsigned id, lane, warp;
    unsigned accesses, meetings; /* see MOST_ACCESSES */
    uint64_t given; /* its value in the warp operation that it waits in */
    int source;     /* the lane whose value it takes, or VOTE or SYNC */
    uint64_t taken;
    uint64_t ordered[WARP]; /* what a lane did before that time is before what this one does */
    Fragments fragments;
    std::vector<std::vector<Copy>> groups; /* of cp.async, the last one open */
};

constexpr int VOTE = -1, SYNC = -2;

/* Those of a mask who have come to a warp operation. */
struct Meeting { uint32_t mask, come; Place at; bool syncs; char *token; };

struct Warp {
    uint32_t all, ended; /* its lanes; the last warp may have fewer than WARP */
    uint64_t time;       /* when all of them met last, at a __syncwarp */
    std::vector<Meeting> meetings;
};

/* Who touched a byte of shared memory last, and when. */
struct Access { uint64_t time; unsigned thread; Place at; };
struct Shadow { Access write, read; };

struct Machine {
    const Launch *launch;
    const char *name;
    char *message; /* receives why the launch failed */
    void (*kernel)();
    void *scheduler;
    void *watched; /* the scheduler as the sanitiser knows it */
    std::vector<uint64_t> args;
    std::vector<Array> arrays;
    const Array *last; /* the one of the last access */
    std::vector<char *> stacks;
    std::vector<Fibre> fibres;
    Fibre *current;
    unsigned live, waiting; /* threads of the block that have not ended, that are at the barrier */
    bool failed;
    uint64_t random; /* the state of next_random */
    std::vector<char> memory; /* shared memory between its guards */
    char *shared;
    std::vector<Shadow> shadows;
    std::vector<Warp> warps;
    uint64_t time;       /* counts barriers, over all blocks */
    uint64_t block_time; /* when all threads of the block met last */
    uint64_t tokens[1024]; /* of meetings, for the sanitiser: each has the next one */
    unsigned num_tokens;
    char *barrier_token, launch_token;
};

static Machine machine;

constexpr size_t MESSAGE_BYTES = 2048;

inline char *next_token()
{
    constexpr unsigned NUMBER = sizeof machine.tokens / sizeof *machine.tokens;
    return reinterpret_cast<char *>(&machine.tokens[machine.num_tokens++ % NUMBER]);
}

/* SplitMix64. */
inline uint64_t next_random()
{
    uint64_t z = machine.random += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

template <class T> void permute(std::vector<T> &items)
{
    for (size_t i = items.size(); i > 1; i--) {
        const size_t j = next_random() % i;
        const T item = items[j];
        items[j] = items[i - 1], items[i - 1] = item;
    }
}

/* From this thread to the scheduler, until it is chosen again. */
inline void leave_thread()
{
    void **from = &machine.current->stack_pointer, *to = machine.scheduler;
    watch_switch(machine.watched);
    specrt_switch(from, to);
}

/* From the scheduler to a thread, until it waits, ends or fails. */
inline void enter_thread(Fibre *fibre)
{
    machine.current = fibre;
    threadIdx = fibre->index;
    void *to = fibre->stack_pointer;
    watch_switch(fibre->watched);
    specrt_switch(&machine.scheduler, to);
}

/* The launch fails, outside of any thread. */
__attribute__((format(printf, 1, 2))) inline void fail_launch(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    vsnprintf(machine.message, MESSAGE_BYTES, format, values);
    va_end(values);
    machine.failed = true;
}

/* The launch fails in this thread, which never goes on. */
[[noreturn]] __attribute__((format(printf, 2, 3))) inline void fail(Place at, const char *format,
                                                                    ...)
{
    const Unwatched unwatched;
    char what[1024];
    va_list values;
    va_start(values, format);
    vsnprintf(what, sizeof what, format, values);
    va_end(values);
    fail_launch("%s:%d: %s (%s, block %u %u %u, thread %u %u %u)", at.file, at.line, what,
                machine.name, blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y,
                threadIdx.z);
    leave_thread();
    __builtin_unreachable();
}

} // namespace emulator
