/* What an access to memory is held to: alignment, bounds, and a barrier between two threads of a
 * block of which one writes to shared memory. */
#include "arrays.h"

namespace emulator {

inline bool is_shared(const void *pointer, size_t bytes)
{
    const char *p = static_cast<const char *>(pointer);
    return p >= machine.shared && p + bytes <= machine.shared + machine.launch->shared_bytes;
}

/* Two threads touched a byte, one of them to write, with no barrier between. */
inline bool races(const Access &past)
{
    const Fibre &me = *machine.current;
    if (past.time < machine.block_time || past.thread == me.id)
        return false;
    return past.thread / WARP != me.warp || (past.time >= machine.warps[me.warp].time &&
                                             past.time >= me.ordered[past.thread % WARP]);
}

inline void note_shared(const void *pointer, size_t bytes, bool writes, Place at)
{
    if (SANITIZED)
        return;
    const Access access{machine.time, machine.current->id, at};
    const size_t start = static_cast<const char *>(pointer) - machine.shared;
    for (size_t i = start; i < start + bytes; i++) {
        Shadow &shadow = machine.shadows[i];
        const bool with_write = races(shadow.write);
        if (with_write || (writes && races(shadow.read))) {
            const Access &past = with_write ? shadow.write : shadow.read;
            fail(at, "no barrier between this %s of shared byte %zu and the %s of thread %u at "
                     "%s:%d",
                 writes ? "write" : "read", i, with_write ? "write" : "read", past.thread,
                 past.at.file, past.at.line);
        }
        (writes ? shadow.write : shadow.read) = access;
    }
}

/* Refuse an access that is not aligned, or not wholly within one array or the shared block. */
inline void check_bounds(const void *pointer, size_t bytes, size_t alignment, Place at,
                         bool writes = false)
{
    if (SANITIZED)
        return;
    const char *p = static_cast<const char *>(pointer);
    if (reinterpret_cast<uintptr_t>(p) % alignment)
        fail(at, "misaligned: %zu bytes at %p; expected a multiple of %zu", bytes, pointer,
             alignment);
    if (++machine.current->accesses > MOST_ACCESSES)
        fail(at, "%u accesses without meeting other threads: it spins", MOST_ACCESSES);
    if (is_shared(p, bytes) || lies_within(*machine.last, p, bytes, writes))
        return;
    for (const Array &array : machine.arrays)
        if (lies_within(array, p, bytes, writes)) {
            machine.last = &array;
            return;
        }
    const Array &near = nearest_array(p);
    if (writes && lies_within(near, p, bytes, false))
        fail(at, "writes %zu bytes to argument %d, which is const", bytes,
             static_cast<int>(near.arg));
    fail(at, "%zu bytes at byte %td of argument %d, which has %d, are outside of shared memory and "
             "of every array of the launch",
         bytes, p - near.start, static_cast<int>(near.arg), static_cast<int>(near.bytes));
}

inline void check_access(const void *pointer, size_t bytes, size_t alignment, bool writes, Place at)
{
    check_bounds(pointer, bytes, alignment, at, writes);
    if (is_shared(pointer, bytes))
        note_shared(pointer, bytes, writes, at);
}

/* Note a copy for the open group of this thread. */
inline void queue_copy(Copy copy, Place at)
{
    const Unwatched unwatched;
    machine.current->at = at;
    machine.current->groups.back().push_back(copy);
}

inline void close_group()
{
    const Unwatched unwatched;
    machine.current->groups.emplace_back();
}

/* Take out the copies of the first group, unless only num_pending closed ones are left. */
inline bool take_group(size_t num_pending, std::vector<Copy> &first)
{
    const Unwatched unwatched;
    auto &groups = machine.current->groups;
    if (groups.size() - 1 <= num_pending)
        return false;
    first.swap(groups[0]);
    groups.erase(groups.begin());
    return true;
}

/* Do the copies of all groups but the last num_pending closed ones: each is a write that happens
 * now. */
inline void wait_copies(size_t num_pending, Place at)
{
    for (std::vector<Copy> group; take_group(num_pending, group); group.clear())
        for (const Copy &copy : group) {
            note_shared(copy.to, copy.bytes, true, at);
            if (copy.from)
                memcpy(copy.to, copy.from, copy.bytes);
            else
                memset(copy.to, 0, copy.bytes);
        }
}

} // namespace emulator
