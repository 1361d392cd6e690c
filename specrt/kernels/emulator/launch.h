/* A launch: its arguments held against the parameters, its blocks one after another, the threads of
 * a block by turns. */
#include "memory.h"
#include "waits.h"

#include <cfenv>
#include <cstring>
#include <type_traits>
#include <utility>

namespace emulator {

/* What a fibre runs; it never returns. */
inline void thread_main()
{
    machine.kernel();
    size_t pending = 0;
    for (const auto &group : machine.current->groups)
        pending += group.size();
    if (pending)
        fail(machine.current->at, "a thread ended with %zu cp.async copies that it never waited "
                                  "for",
             pending);
    machine.live--;
    machine.current->state = State::ended;
    open_block_barrier();
    specrt_switch(&machine.current->stack_pointer, machine.scheduler);
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
            known = known || (place.line == fibre.at.line && !strcmp(place.file, fibre.at.file));
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

inline void run_block()
{
    const Launch &launch = *machine.launch;
    machine.memory.assign(launch.shared_bytes + 2 * GUARD + 128, static_cast<char>(CANARY));
    char *start = machine.memory.data() + GUARD;
    machine.shared = start + (-reinterpret_cast<uintptr_t>(start) & 127);
    memset(machine.shared, POISON, launch.shared_bytes);
    machine.block_time++;
    machine.live = machine.fibres.size();
    machine.waiting = 0;
    std::vector<Fibre *> order;
    for (Fibre &fibre : machine.fibres) {
        fibre.stack_pointer = first_frame(machine.stacks[fibre.id], thread_main);
        fibre.state = State::runnable;
        fibre.groups.assign(1, {});
        order.push_back(&fibre);
    }
    while (machine.live) {
        permute(order);
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
    machine.random = launch.seed;
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
    permute(blocks);
    fenv_t before;
    fegetenv(&before);
    fesetenv(FE_DFL_ENV);
    __builtin_ia32_ldmxcsr(launch.flush ? MXCSR_FLUSH : MXCSR_DEFAULT);
    for (uint3 block : blocks) {
        blockIdx = block;
        run_block();
        if (machine.failed)
            break;
    }
    fesetenv(&before);
    return machine.failed;
}

/* How an argument is written: p pointer, i and u 32-bit, l and k 64-bit integers, f float. */
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
            fail_launch("%s: %u threads a block; expected its launch bound, %u", name, threads,
                        bound);
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
