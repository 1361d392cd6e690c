/* The machine under a kernel: blocks one after another, the threads of a block as fibres.
 *
 * A thread runs until it waits or ends; then another that may run does, chosen by the seed, as the
 * order of blocks is. A block barrier opens when all live threads of the block wait at it; a warp
 * operation when all threads of its mask do. If nobody may run, or those who meet do not agree on
 * where or for whom, the launch fails and names the lines. Shared memory starts as 0xff (NaN, -1)
 * between guards. What it cannot show: memory order between blocks, registers that were never
 * written, bank conflicts, speed.
 */
#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <random>
#include <type_traits>
#include <utility>
#include <vector>

struct uint3 { unsigned x, y, z; };
static uint3 threadIdx, blockIdx, blockDim, gridDim;

namespace emulator {

constexpr unsigned WARP = 32, MAX_THREADS = 1024, GUARD = 256;
constexpr unsigned char POISON = 0xff, CANARY = 0xa5;

struct Place { const char *file; int line; };

struct Range { const char *start, *end; };

/* What Python passes (specrt/kernels/emulator/__init__.py has the same). */
struct Launch {
    uint3 grid, block;
    size_t shared_bytes;
    uint64_t seed;
    void **args;
    const char *codes; /* one per argument: see code_of */
    const Range *ranges;
    int num_ranges;
    char *message; /* receives why the launch failed */
    size_t message_bytes;
};

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
    unsigned live;
    bool failed;
    std::mt19937_64 random;
    std::vector<char> memory; /* shared memory between its guards */
    char *shared;
    std::vector<Shadow> shadows;
    uint64_t block_time;              /* counts block barriers, over all blocks */
    std::vector<uint64_t> warp_times; /* counts barriers of whole warps */
};

static Machine machine;

inline void say(const char *format, va_list values)
{
    vsnprintf(machine.launch->message, machine.launch->message_bytes, format, values);
    machine.failed = true;
}

/* The launch fails, outside of any thread. */
__attribute__((format(printf, 1, 2))) inline void fail_launch(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    say(format, values);
    va_end(values);
}

/* The launch fails in this thread, which never goes on. */
[[noreturn]] __attribute__((format(printf, 2, 3))) inline void fail(Place at, const char *format, ...)
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

/* Open the block barrier if all live threads wait there. */
inline void open_block_barrier()
{
    std::vector<Fibre *> waiting;
    for (Fibre &fibre : machine.fibres)
        if (fibre.state == State::block_barrier)
            waiting.push_back(&fibre);
    if (waiting.empty() || waiting.size() < machine.live)
        return;
    for (Fibre *fibre : waiting) {
        const Place a = fibre->at, b = waiting[0]->at;
        if (a.line != b.line || strcmp(a.file, b.file))
            return fail_launch("%s: threads meet at different barriers: %s:%d and %s:%d",
                               machine.name, b.file, b.line, a.file, a.line);
        fibre->state = State::runnable;
    }
    machine.block_time++;
}

inline void block_barrier(Place at)
{
    machine.current->state = State::block_barrier;
    machine.current->at = at;
    open_block_barrier();
    specrt_switch(&machine.current->stack_pointer, machine.scheduler);
}

/* Give a value to the threads of a mask and take one of theirs. */
inline uint64_t warp_operation(uint32_t mask, uint64_t given, int source, Place at)
{
    Fibre &me = *machine.current;
    if (!(mask >> me.lane & 1))
        fail(at, "lane %u takes part in a warp operation over mask %08x without it", me.lane, mask);
    if (source >= 0 && !(mask >> source & 1))
        fail(at, "lane %u reads lane %d, which is not in mask %08x", me.lane, source, mask);
    me.given = given, me.source = source, me.mask = mask;
    me.state = State::warp_operation, me.at = at;
    Fibre *warp = &machine.fibres[me.warp * WARP];
    const unsigned size = std::min<size_t>(WARP, machine.fibres.size() - me.warp * WARP);
    bool all_here = true;
    for (unsigned lane = 0; lane < WARP; lane++) {
        if (!(mask >> lane & 1))
            continue;
        if (lane >= size || warp[lane].state == State::ended)
            fail(at, "mask %08x names lane %u, which has ended or never was", mask, lane);
        const Fibre &other = warp[lane];
        if (other.state != State::warp_operation)
            all_here = false;
        else if (other.mask != mask || other.at.line != at.line || strcmp(other.at.file, at.file))
            fail(at, "lane %u waits at %s:%d with mask %08x, lane %u here with mask %08x", lane,
                 other.at.file, other.at.line, other.mask, me.lane, mask);
    }
    if (all_here) {
        uint64_t votes = 0;
        for (unsigned lane = 0; lane < size; lane++)
            if (mask >> lane & 1)
                votes |= uint64_t(warp[lane].given != 0) << lane;
        for (unsigned lane = 0; lane < size; lane++)
            if (mask >> lane & 1) {
                const int from = warp[lane].source;
                warp[lane].taken = from < 0 ? votes : warp[from].given;
                warp[lane].state = State::runnable;
            }
        if (source == SYNC && mask == uint32_t((uint64_t(1) << size) - 1))
            machine.warp_times[me.warp]++; /* a shuffle orders no memory */
    }
    specrt_switch(&me.stack_pointer, machine.scheduler);
    return me.taken;
}

inline bool is_shared(const void *pointer, size_t bytes)
{
    const char *p = static_cast<const char *>(pointer);
    return p >= machine.shared && p + bytes <= machine.shared + machine.launch->shared_bytes;
}

/* Two threads touched a byte, one of them to write, with no barrier between. */
inline bool races(const Access &past)
{
    const Fibre &me = *machine.current;
    return past.block_time == machine.block_time && past.thread != me.id &&
           (past.thread / WARP != me.warp || past.warp_time == machine.warp_times[me.warp]);
}

inline void note_shared(const void *pointer, size_t bytes, bool writes, Place at)
{
    const Fibre &me = *machine.current;
    const Access access{machine.block_time, machine.warp_times[me.warp], me.id, at};
    const size_t start = static_cast<const char *>(pointer) - machine.shared;
    for (size_t i = start; i < start + bytes; i++) {
        Shadow &shadow = machine.shadows[i];
        const bool with_write = races(shadow.write);
        if (with_write || (writes && races(shadow.read))) {
            const Access &past = with_write ? shadow.write : shadow.read;
            fail(at, "no barrier between this %s of shared byte %zu and the %s of thread %u at %s:%d",
                 writes ? "write" : "read", i, with_write ? "write" : "read", past.thread,
                 past.at.file, past.at.line);
        }
        (writes ? shadow.write : shadow.read) = access;
    }
}

/* Refuse an access that is not aligned, or not wholly within one array or the shared block. */
inline void check_bounds(const void *pointer, size_t bytes, size_t alignment, Place at)
{
    const char *p = static_cast<const char *>(pointer);
    if (reinterpret_cast<uintptr_t>(p) % alignment)
        fail(at, "misaligned: %zu bytes at %p; expected a multiple of %zu", bytes, pointer, alignment);
    if (is_shared(p, bytes))
        return;
    for (int i = 0; i < machine.launch->num_ranges; i++)
        if (p >= machine.launch->ranges[i].start && p + bytes <= machine.launch->ranges[i].end)
            return;
    fail(at, "%zu bytes at %p are outside of shared memory and of every array of the launch", bytes,
         pointer);
}

inline void check_access(const void *pointer, size_t bytes, size_t alignment, bool writes, Place at)
{
    check_bounds(pointer, bytes, alignment, at);
    if (is_shared(pointer, bytes))
        note_shared(pointer, bytes, writes, at);
}

/* Do the copies of all groups but the last num_pending closed ones: each is a write that happens
 * now. */
inline void wait_copies(size_t num_pending, Place at)
{
    auto &groups = machine.current->groups;
    while (groups.size() - 1 > num_pending) {
        for (const Copy &copy : groups[0]) {
            note_shared(copy.to, copy.bytes, true, at);
            if (copy.from)
                memcpy(copy.to, copy.from, copy.bytes);
            else
                memset(copy.to, 0, copy.bytes);
        }
        groups.erase(groups.begin());
    }
}

inline void thread_main()
{
    machine.kernel();
    size_t pending = 0;
    for (const auto &group : machine.current->groups)
        pending += group.size();
    if (pending)
        fail(machine.current->at, "a thread ended with %zu cp.async copies that it never waited for",
             pending);
    machine.live--;
    machine.current->state = State::ended;
    open_block_barrier();
    specrt_switch(&machine.current->stack_pointer, machine.scheduler);
    __builtin_unreachable();
}

inline void fail_blocked()
{
    char lines[512] = "";
    std::vector<std::pair<const char *, int>> seen;
    for (const Fibre &fibre : machine.fibres) {
        const std::pair<const char *, int> place{fibre.at.file, fibre.at.line};
        if (fibre.state == State::ended || std::count(seen.begin(), seen.end(), place))
            continue;
        seen.push_back(place);
        const size_t used = strlen(lines);
        snprintf(lines + used, sizeof lines - used, "%s%s:%d (thread %u)", used ? ", " : "",
                 place.first, place.second, fibre.id);
    }
    fail_launch("%s, block %u %u %u: all threads wait: at %s", machine.name, blockIdx.x, blockIdx.y,
                blockIdx.z, lines);
}

inline void run_block()
{
    const Launch &launch = *machine.launch;
    machine.memory.assign(launch.shared_bytes + 2 * GUARD + 128, static_cast<char>(CANARY));
    char *start = machine.memory.data() + GUARD;
    machine.shared = start + (-reinterpret_cast<uintptr_t>(start) & 127);
    memset(machine.shared, POISON, launch.shared_bytes);
    machine.block_time++;
    machine.live = machine.fibres.size();
    std::vector<Fibre *> order;
    for (Fibre &fibre : machine.fibres) {
        fibre.stack_pointer = first_frame(machine.stacks[fibre.id], thread_main);
        fibre.state = State::runnable;
        fibre.groups.assign(1, {});
        order.push_back(&fibre);
    }
    while (machine.live) {
        std::shuffle(order.begin(), order.end(), machine.random);
        bool any = false;
        for (Fibre *fibre : order) {
            if (fibre->state != State::runnable)
                continue;
            any = true;
            machine.current = fibre;
            threadIdx = fibre->index;
            specrt_switch(&machine.scheduler, fibre->stack_pointer);
            if (machine.failed)
                return;
        }
        if (!any)
            return fail_blocked();
    }
    for (const char &byte : machine.memory)
        if ((&byte < machine.shared || &byte >= machine.shared + launch.shared_bytes) &&
            static_cast<unsigned char>(byte) != CANARY)
            return fail_launch("%s, block %u %u %u: byte %td of %zu of shared memory was written",
                               machine.name, blockIdx.x, blockIdx.y, blockIdx.z,
                               &byte - machine.shared, launch.shared_bytes);
}

/* Threads of the block, each with a stack; false if there is no memory. */
inline bool make_fibres(uint3 block)
{
    machine.fibres.clear();
    for (unsigned z = 0; z < block.z; z++)
        for (unsigned y = 0; y < block.y; y++)
            for (unsigned x = 0; x < block.x; x++) {
                const unsigned id = machine.fibres.size();
                Fibre fibre{};
                fibre.index = {x, y, z};
                fibre.id = id, fibre.lane = id % WARP, fibre.warp = id / WARP;
                machine.fibres.push_back(fibre);
            }
    while (machine.stacks.size() < machine.fibres.size())
        if (char *stack = new_stack())
            machine.stacks.push_back(stack);
        else
            return false;
    machine.warp_times.assign(machine.fibres.size() / WARP + 1, 0);
    return true;
}

/* Run every block; 0, or 1 with a message. */
inline int run(const Launch &launch, const char *name, void (*kernel)())
{
    machine.launch = &launch, machine.name = name, machine.kernel = kernel;
    machine.failed = false;
    machine.random.seed(launch.seed);
    blockDim = launch.block, gridDim = launch.grid;
    machine.shadows.assign(launch.shared_bytes, Shadow{});
    if (!make_fibres(launch.block)) {
        fail_launch("%s: no memory for %zu stacks", name, machine.fibres.size());
        return 1;
    }
    std::vector<uint3> blocks;
    for (unsigned z = 0; z < launch.grid.z; z++)
        for (unsigned y = 0; y < launch.grid.y; y++)
            for (unsigned x = 0; x < launch.grid.x; x++)
                blocks.push_back({x, y, z});
    std::shuffle(blocks.begin(), blocks.end(), machine.random);
    for (uint3 block : blocks) {
        blockIdx = block;
        run_block();
        if (machine.failed)
            break;
    }
    return machine.failed;
}

/* How an argument is written: p pointer, i and u 32-bit, l and k 64-bit integers, f float. */
template <class T> constexpr char code_of()
{
    if (std::is_pointer<T>::value)
        return 'p';
    if (std::is_same<T, float>::value)
        return 'f';
    static_assert(std::is_pointer<T>::value || std::is_same<T, float>::value ||
                      std::is_integral<T>::value,
                  "an argument is a pointer, an integer or a float");
    return std::is_signed<T>::value ? (sizeof(T) == 8 ? 'l' : sizeof(T) == 4 ? 'i' : '?')
                                    : (sizeof(T) == 8 ? 'k' : sizeof(T) == 4 ? 'u' : '?');
}

/* What starts one kernel: its arguments are held against its parameters first. */
template <auto kernel> struct Entry;
template <class... Args, void (*kernel)(Args...)> struct Entry<kernel> {
    template <size_t... I> static void call(std::index_sequence<I...>)
    {
        kernel(*static_cast<Args *>(machine.launch->args[I])...);
    }
    static void call_all() { call(std::index_sequence_for<Args...>{}); }

    static int start(const Launch &launch, const char *name, unsigned bound)
    {
        static constexpr char codes[] = {code_of<Args>()..., 0};
        machine.launch = &launch;
        if (strcmp(codes, launch.codes))
            fail_launch("%s: arguments %s; expected %s", name, launch.codes, codes);
        else if (const unsigned threads = launch.block.x * launch.block.y * launch.block.z;
                 threads != bound)
            fail_launch("%s: %u threads a block; expected its launch bound, %u", name, threads, bound);
        else
            return run(launch, name, call_all);
        return 1;
    }
};

} // namespace emulator

#define SPECRT_ENTRY(name, bound)                                                                \
    extern "C" __attribute__((visibility("default"))) int emulate_##name(                        \
        const emulator::Launch *launch)                                                          \
    {                                                                                            \
        return emulator::Entry<name>::start(*launch, #name, bound);                              \
    }
