/* Where threads wait for each other: block barriers, and operations of warps. */
#include "machine.h"

namespace emulator {

/* Count a thread's meeting with others. */
inline void meet(Place at)
{
    Fibre &me = *machine.current;
    me.at = at, me.accesses = 0;
    if (++me.meetings > MOST_MEETINGS)
        fail(at, "%u barriers and warp operations of one thread: it spins", MOST_MEETINGS);
}

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
        if (!same(fibre.at, first->at))
            return fail_launch("%s: threads meet at different barriers: %s:%d and %s:%d",
                               machine.name, first->at.file, first->at.line, fibre.at.file,
                               fibre.at.line);
        fibre.state = State::runnable;
    }
    machine.waiting = 0;
    machine.block_time = ++machine.time;
}

inline void block_barrier(Place at)
{
    const Unwatched unwatched;
    meet(at);
    if (!machine.waiting++)
        machine.barrier_token = next_token();
    char *token = machine.barrier_token;
    release(token);
    machine.current->state = State::block_barrier;
    open_block_barrier();
    leave_thread();
    acquire(token);
}

/* What each of these lanes did is before what each of them will do. */
inline void order_lanes(Warp &warp, Fibre *lanes, uint32_t come)
{
    machine.time++;
    if (come == warp.all) {
        warp.time = machine.time;
        return;
    }
    uint64_t ordered[WARP] = {};
    for (unsigned lane = 0; lane < WARP; lane++)
        for (unsigned other = 0; come >> lane & 1 && other < WARP; other++)
            if (const uint64_t until = other == lane ? machine.time : lanes[lane].ordered[other];
                until > ordered[other])
                ordered[other] = until;
    for (unsigned lane = 0; lane < WARP; lane++)
        if (come >> lane & 1)
            memcpy(lanes[lane].ordered, ordered, sizeof ordered);
}

/* Hand out the values of an operation that all of its mask have come to, but those that ended: only
 * a __syncwarp goes on without them. (In CUDA shuffles do, too; no kernel here has a use for it.) */
inline void finish_warp_operation(Warp &warp, Fibre *lanes, const Meeting &meeting)
{
    uint64_t votes = 0;
    for (unsigned lane = 0; lane < WARP; lane++)
        if (meeting.come >> lane & 1)
            votes |= uint64_t(lanes[lane].given != 0) << lane;
    for (unsigned lane = 0; lane < WARP; lane++)
        if (meeting.come >> lane & 1) {
            const int from = lanes[lane].source;
            if (const uint32_t missed = from == SYNC ? 0 : meeting.mask & ~meeting.come)
                return fail_launch("%s:%d: lane %u needs lane %d, which has ended or never was "
                                   "(%s, block %u %u %u)",
                                   meeting.at.file, meeting.at.line, lane, __builtin_ctz(missed),
                                   machine.name, blockIdx.x, blockIdx.y, blockIdx.z);
            lanes[lane].taken = from < 0 ? votes : lanes[from].given;
            lanes[lane].state = State::runnable;
        }
    if (meeting.syncs) /* a shuffle orders no memory */
        order_lanes(warp, lanes, meeting.come);
}

/* Finish the operations for which nobody is missed any more. */
inline void finish_warp_operations(unsigned number)
{
    Warp &warp = machine.warps[number];
    for (size_t i = 0; i < warp.meetings.size();) {
        const Meeting meeting = warp.meetings[i];
        if (meeting.mask & ~meeting.come & ~warp.ended) {
            i++;
            continue;
        }
        warp.meetings.erase(warp.meetings.begin() + static_cast<ptrdiff_t>(i));
        finish_warp_operation(warp, &machine.fibres[number * WARP], meeting);
    }
}

/* The meeting of a mask, which the first to come opens. Other lanes may meet beside it. */
inline Meeting &meeting_of(Warp &warp, uint32_t mask, bool syncs, Place at)
{
    for (Meeting &meeting : warp.meetings)
        if (meeting.mask == mask) {
            if (!same(meeting.at, at))
                fail(at, "lanes %08x of mask %08x wait at %s:%d, lane %u here", meeting.come, mask,
                     meeting.at.file, meeting.at.line, machine.current->lane);
            return meeting;
        }
    warp.meetings.push_back({mask, 0, at, syncs, syncs ? next_token() : nullptr});
    return warp.meetings.back();
}

/* Give a value to the threads of a mask and take one of theirs. */
inline uint64_t warp_operation(uint32_t mask, uint64_t given, int source, Place at)
{
    const Unwatched unwatched;
    Fibre &me = *machine.current;
    if (!(mask >> me.lane & 1))
        fail(at, "lane %u takes part in a warp operation over mask %08x without it", me.lane, mask);
    if (source >= 0 && !(mask >> source & 1))
        fail(at, "lane %u reads lane %d, which is not in mask %08x", me.lane, source, mask);
    meet(at);
    me.given = given, me.source = source;
    me.state = State::warp_operation;
    Meeting &meeting = meeting_of(machine.warps[me.warp], mask, source == SYNC, at);
    char *token = meeting.token;
    if (token)
        release(token);
    meeting.come |= 1u << me.lane;
    finish_warp_operations(me.warp);
    leave_thread();
    if (token)
        acquire(token);
    return me.taken;
}

} // namespace emulator
