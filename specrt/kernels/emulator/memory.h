/* What an access to memory is held to: alignment, bounds, and a barrier between two threads of a
 * block of which one writes to shared memory. */
#include "machine.h"

#include <cstring>

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
            fail(at, "no barrier between this %s of shared byte %zu and the %s of thread %u at "
                     "%s:%d",
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
        fail(at, "misaligned: %zu bytes at %p; expected a multiple of %zu", bytes, pointer,
             alignment);
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

} // namespace emulator
