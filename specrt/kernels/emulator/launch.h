/* A launch: its arguments held against the parameters, its blocks one after another, the threads of
 * a block by turns. */
#include "memory.h"
#include "waits.h"

#include <cfenv>
#include <type_traits>
#include <utility>

namespace emulator {

/* A thread that has run to its end. */
inline void end_thread()
{
    const Unwatched unwatched;
    Fibre &me = *machine.current;
    size_t pending = 0;
    for (const auto &group : me.groups)
        pending += group.size();
    if (pending)
        fail(me.at, "a thread ended with %zu cp.async copies that it never waited for", pending);
    if (machine.waiting)
        release(machine.barrier_token); /* it counts as arrived */
    release(&machine.launch_token);
    machine.live--;
    me.state = State::ended;
    machine.warps[me.warp].ended |= 1u << me.lane;
    finish_warp_operations(me.warp);
    open_block_barrier();
}

/* What a fibre runs; it never returns. */
inline void thread_main()
{
    machine.kernel();
    end_thread();
    leave_thread();
    __builtin_unreachable();
}

/* Name the lines at which threads wait for ever, each with one of its threads. */
inline void fail_blocked()
{
    char lines[512] = "";
    std::vector<Place> seen;
    for (const Fibre &fibre : machine.fibres) {
        bool known = fibre.state == State::ended;
        for (const Place &place : seen)
            known = known || same(place, fibre.at);
        if (known)
            continue;
        const size_t used = strlen(lines);
        snprintf(lines + used, sizeof lines - used, "%s%s:%d (thread %u)", used ? ", " : "",
                 fibre.at.file, fibre.at.line, fibre.id);
        seen.push_back(fibre.at);
    }
    fail_launch("%s, block %u %u %u: all threads wait: at %s", machine.name, blockIdx.x, blockIdx.y,
                blockIdx.z, lines);
}

/* All exceptions masked, to nearest even; results and operands flushed. */
constexpr unsigned MXCSR_DEFAULT = 0x1f80, MXCSR_FLUSH = MXCSR_DEFAULT | 0x8040;

/* Memory that no thread of an earlier block has touched, as the sanitiser sees it. */
inline void new_block_memory(size_t shared_bytes)
{
    machine.memory = std::vector<char>(shared_bytes + 2 * GUARD + 128, static_cast<char>(CANARY));
    char *start = machine.memory.data() + GUARD;
    machine.shared = start + (-reinterpret_cast<uintptr_t>(start) & 127);
    memset(machine.shared, POISON, shared_bytes);
    for (size_t i = 0; SANITIZED && i < machine.stacks.size(); i++) {
        drop_stack(machine.stacks[i]);
        machine.stacks[i] = new_stack();
    }
}

/* The threads of the block at their beginning, in an order of the seed. */
inline std::vector<Fibre *> start_threads()
{
    std::vector<Fibre *> order;
    for (Fibre &fibre : machine.fibres) {
        fibre.stack_pointer = first_frame(machine.stacks[fibre.id], thread_main);
        fibre.state = State::runnable;
        fibre.accesses = fibre.meetings = 0;
        fibre.groups.resize(1);
        fibre.groups[0].clear();
        order.push_back(&fibre);
    }
    machine.warps.resize((order.size() + WARP - 1) / WARP);
    for (size_t i = 0; i < machine.warps.size(); i++) {
        Warp &warp = machine.warps[i];
        const size_t size = std::min<size_t>(WARP, order.size() - i * WARP);
        warp.all = static_cast<uint32_t>((uint64_t(1) << size) - 1);
        warp.ended = ~warp.all;
        warp.meetings.clear();
    }
    permute(order);
    for (Fibre *fibre : order) /* the sanitiser uses names again: the same thread seldom has one */
        fibre->watched = watch_thread();
    machine.live = order.size();
    machine.waiting = 0;
    machine.block_time = ++machine.time;
    return order;
}

/* Let each thread run in its turn until all have ended. */
inline void run_threads(std::vector<Fibre *> order)
{
    while (machine.live) {
        permute(order);
        bool any = false;
        for (Fibre *fibre : order) {
            if (fibre->state != State::runnable)
                continue;
            any = true;
            enter_thread(fibre);
            if (machine.failed)
                return;
        }
        if (!any)
            return fail_blocked();
    }
}

inline void run_block()
{
    const size_t shared_bytes = machine.launch->shared_bytes;
    new_block_memory(shared_bytes);
    run_threads(start_threads());
    if (machine.failed)
        return; /* in the midst of threads: the sanitiser cannot let go of those */
    for (Fibre &fibre : machine.fibres)
        forget_thread(fibre.watched);
    for (const char &byte : machine.memory)
        if ((&byte < machine.shared || &byte >= machine.shared + shared_bytes) &&
            static_cast<unsigned char>(byte) != CANARY)
            return fail_launch("%s, block %u %u %u: byte %td of %zu of shared memory was written",
                               machine.name, blockIdx.x, blockIdx.y, blockIdx.z,
                               &byte - machine.shared, shared_bytes);
}

/* Threads of the block, each with a stack; false if there is no memory. */
inline bool make_fibres(uint3 block)
{
    const unsigned number = block.x * block.y * block.z;
    machine.fibres.resize(number);
    for (unsigned id = 0; id < number; id++) {
        Fibre &fibre = machine.fibres[id];
        fibre.index = {id % block.x, id / block.x % block.y, id / (block.x * block.y)};
        fibre.id = id, fibre.lane = id % WARP, fibre.warp = id / WARP;
    }
    while (machine.stacks.size() < number)
        if (char *stack = new_stack())
            machine.stacks.push_back(stack);
        else
            return false;
    return true;
}

/* Every kernel keeps some of its stacks. With its guard a stack is two mappings, of which a process
 * has 65,530: few hundred kernels could not keep 256 each. */
constexpr size_t KEPT_STACKS = 64;

inline void drop_stacks()
{
    for (; !SANITIZED && machine.stacks.size() > KEPT_STACKS; machine.stacks.pop_back())
        drop_stack(machine.stacks.back());
}

/* Run every block, in the order of the seed. */
inline void run_blocks(uint3 grid)
{
    std::vector<uint3> blocks;
    for (unsigned z = 0; z < grid.z; z++)
        for (unsigned y = 0; y < grid.y; y++)
            for (unsigned x = 0; x < grid.x; x++)
                blocks.push_back({x, y, z});
    permute(blocks);
    fenv_t before;
    fegetenv(&before);
    fesetenv(FE_DFL_ENV);
    __builtin_ia32_ldmxcsr(machine.launch->flush ? MXCSR_FLUSH : MXCSR_DEFAULT);
    for (uint3 block : blocks) {
        blockIdx = block;
        run_block();
        if (machine.failed)
            break;
    }
    fesetenv(&before);
}

/* Run a kernel over the arguments that the machine has. */
inline void run(void (*kernel)())
{
    const Launch &launch = *machine.launch;
    machine.kernel = kernel;
    machine.random = launch.seed;
    machine.watched = watched_thread();
    blockDim = launch.block, gridDim = launch.grid;
    machine.shadows.assign(launch.shared_bytes, Shadow{});
    if (!make_fibres(launch.block))
        return fail_launch("%s: no memory for %zu stacks", machine.name, machine.fibres.size());
    if (!place_arrays())
        return fail_launch("%s: no memory for the arrays", machine.name);
    static const Array nowhere{};
    machine.last = &nowhere;
    run_blocks(launch.grid);
    acquire(&machine.launch_token);
    return_arrays();
    drop_stacks();
}

/* How a type is written: p pointer, i and u 32-bit, l and k 64-bit integers, f float. */
template <class T> constexpr char code_of()
{
    if constexpr (std::is_pointer<T>::value)
        return 'p';
    else if constexpr (std::is_same<T, float>::value)
        return 'f';
    else {
        static_assert(std::is_integral<T>::value && (sizeof(T) == 4 || sizeof(T) == 8),
                      "an argument is a pointer, a float or an integer of 32 or 64 bits");
        constexpr bool wide = sizeof(T) == 8;
        return std::is_signed<T>::value ? (wide ? 'l' : 'i') : (wide ? 'k' : 'u');
    }
}

template <class T> constexpr bool is_writable()
{
    return std::is_pointer<T>::value && !std::is_const<std::remove_pointer_t<T>>::value;
}

/* What starts one kernel: its arguments are held against its parameters first. */
template <auto kernel> struct Entry;
template <class... Args, void (*kernel)(Args...)> struct Entry<kernel> {
    template <class T> static T argument(size_t number)
    {
        T value;
        memcpy(&value, &machine.args[number], sizeof value);
        return value;
    }
    template <size_t... I> static void call(std::index_sequence<I...>)
    {
        kernel(argument<Args>(I)...);
    }
    static void call_all() { call(std::index_sequence_for<Args...>{}); }

    static bool start(const Launch &launch, const char *codes, const uint64_t *args,
                      const Array *arrays, unsigned bound)
    {
        static constexpr char expected[] = {code_of<Args>()..., 0};
        static constexpr bool writable[] = {is_writable<Args>()..., false};
        const unsigned threads = launch.block.x * launch.block.y * launch.block.z;
        if (strcmp(codes, expected))
            fail_launch("%s: arguments %s; expected %s", machine.name, codes, expected);
        else if (threads != bound)
            fail_launch("%s: %u threads a block; expected its launch bound, %u", machine.name,
                        threads, bound);
        else {
            machine.args.assign(args, args + sizeof...(Args));
            machine.arrays.assign(arrays, arrays + launch.num_arrays);
            for (Array &array : machine.arrays)
                array.writable = writable[array.arg];
            run(call_all);
        }
        return !machine.failed;
    }
};

} // namespace emulator

/* Run an entry; 0, or 1 with a message (MESSAGE_BYTES). */
#define SPECRT_ENTRY(entry, bound)                                                               \
    extern "C" __attribute__((visibility("default"))) int emulate_##entry(                       \
        const emulator::Launch *launch, const char *codes, const uint64_t *args,                 \
        const emulator::Array *arrays, char *message)                                            \
    {                                                                                            \
        using namespace emulator;                                                                \
        const Unwatched unwatched;                                                               \
        machine.launch = launch, machine.name = #entry, machine.message = message;               \
        machine.failed = false;                                                                  \
        return !Entry<entry>::start(*launch, codes, args, arrays, bound);                        \
    }
