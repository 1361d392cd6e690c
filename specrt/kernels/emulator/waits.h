/* Where threads wait for each other: block barriers, and operations of warps. */
#include "machine.h"

#include <cstring>

namespace emulator {

/* Open the block barrier if all live threads wait there. */
inline void open_block_barrier()
{
    if (!machine.waiting || machine.waiting < machine.live)
        return;
    const Fibre *first = nullptr;
    for (Fibre &fibre : machine.fibres) {
        if (fibre.state != State::block_barrier)
            continue;
        first = first ? first : &fibre;
        if (fibre.at.line != first->at.line || strcmp(fibre.at.file, first->at.file))
            return fail_launch("%s: threads meet at different barriers: %s:%d and %s:%d",
                               machine.name, first->at.file, first->at.line, fibre.at.file,
                               fibre.at.line);
        fibre.state = State::runnable;
    }
    machine.waiting = 0;
    machine.block_time++;
}

inline void block_barrier(Place at)
{
    machine.current->state = State::block_barrier;
    machine.current->at = at;
    machine.waiting++;
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
    const unsigned left = machine.fibres.size() - me.warp * WARP, size = left < WARP ? left : WARP;
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

} // namespace emulator
