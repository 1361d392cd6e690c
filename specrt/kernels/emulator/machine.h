/* The machine under a kernel: blocks one after another, the threads of a block as fibres.
 *
 * A thread runs until it waits or ends; then another that may run does, chosen by the seed, as the
 * order of blocks is. A block barrier opens when all live threads of the block wait at it; a warp
 * operation when all threads of its mask do. If nobody may run, or those who meet do not agree on
 * where or for whom, the launch fails and names the lines. Shared memory starts as 0xff (NaN, -1)
 * between guards. What it cannot show: memory order between blocks, registers that were never
 * written, bank conflicts, speed. A thread that spins lets nobody run, so blocks cannot wait for
 * each other.
 */
#include "fibre.h"

#include <cstdarg>
#include <cstdio>
#include <vector>

struct uint3 { unsigned x, y, z; };
static uint3 threadIdx, blockIdx, blockDim, gridDim;

namespace emulator {

constexpr unsigned WARP = 32, GUARD = 256;
constexpr unsigned char POISON = 0xff, CANARY = 0xa5;

struct Place { const char *file; int line; };

struct Range { const char *start, *end; };

/* What Python passes (specrt/kernels/emulator/__init__.py has the same). */
struct Launch {
    uint3 grid, block;
    size_t shared_bytes;
    uint64_t seed;
    int flush; /* subnormal numbers are zeros, as CuPy compiles */
    void **args;
    const char *codes; /* one per argument: see code_of */
    const Range *ranges;
    int num_ranges;
    char *message; /* receives why the launch failed */
    size_t message_bytes;
};

/* What a lane brings to a product of matrices. */
struct Fragments { int a[4], b[2]; };

struct Copy { char *to; const char *from; size_t bytes; };

enum class State { runnable, block_barrier, warp_operation, ended };

struct Fibre {
    void *stack_pointer;
    State state;
    Place at;
    uint3 index;
    unsigned id, lane, warp;
    uint32_t mask;   /* of the warp operation that it waits in */
    uint64_t given;  /* its value there */
    int source;      /* the lane whose value it takes, or VOTE or SYNC */
    uint64_t taken;
    Fragments fragments;
    std::vector<std::vector<Copy>> groups; /* of cp.async, the last one open */
};

constexpr int VOTE = -1, SYNC = -2;

/* Who touched a byte of shared memory last, and when. */
struct Access { uint64_t block_time, warp_time; unsigned thread; Place at; };
struct Shadow { Access write, read; };

struct Machine {
    const Launch *launch;
    const char *name;
    void (*kernel)();
    void *scheduler;
    std::vector<char *> stacks;
    std::vector<Fibre> fibres;
    Fibre *current;
    unsigned live, waiting; /* threads of the block that have not ended, that are at the barrier */
    bool failed;
    uint64_t random; /* the state of next_random */
    std::vector<char> memory; /* shared memory between its guards */
    char *shared;
    std::vector<Shadow> shadows;
    uint64_t block_time;              /* counts block barriers, over all blocks */
    std::vector<uint64_t> warp_times; /* counts barriers of whole warps: others order no memory */
};

static Machine machine;

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

/* The launch fails, outside of any thread. */
__attribute__((format(printf, 1, 2))) inline void fail_launch(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    vsnprintf(machine.launch->message, machine.launch->message_bytes, format, values);
    va_end(values);
    machine.failed = true;
}

/* The launch fails in this thread, which never goes on. */
[[noreturn]] __attribute__((format(printf, 2, 3))) inline void fail(Place at, const char *format,
                                                                    ...)
{
    char what[1024];
    va_list values;
    va_start(values, format);
    vsnprintf(what, sizeof what, format, values);
    va_end(values);
    fail_launch("%s:%d: %s (%s, block %u %u %u, thread %u %u %u)", at.file, at.line, what,
                machine.name, blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y,
                threadIdx.z);
    specrt_switch(&machine.current->stack_pointer, machine.scheduler);
    __builtin_unreachable();
}

} // namespace emulator
