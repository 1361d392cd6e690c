/* The arrays of a launch, copied to where each stands alone, and copied back.
 *
 * Side by side in a program's memory, an array's neighbour would be within reach of an index that
 * is one too large. Arrays that overlap keep doing so; all keep their alignment.
 */
#include "machine.h"

#include <algorithm>

namespace emulator {

constexpr size_t ALIGNMENT = 256, GAP = 1 << 20, MOST_KEPT = 64 << 20;

/* Arrays that overlap, from the first byte of any to the last. */
struct Group { char *home, *place; size_t bytes; int arg; bool writable; };

/* Memory for the arrays of one launch after another. */
struct Arena {
    char *start;
    size_t bytes;
    std::vector<Group> groups;
};

static Arena arena;

inline bool lies_within(const Array &array, const char *p, size_t bytes, bool writes)
{
    const int64_t at = p - array.start;
    if (at < 0 || at + static_cast<int64_t>(bytes) > array.bytes || (writes && !array.writable))
        return false;
    return array.pitch == array.row_bytes ||
           at % array.pitch + static_cast<int64_t>(bytes) <= array.row_bytes;
}

/* The array that begins or ends nearest to p; there is one. */
inline const Array &nearest_array(const char *p)
{
    auto distance = [p](const Array &array) {
        return p < array.start ? array.start - p
                               : std::max<int64_t>(p - array.start - array.bytes, 0);
    };
    return *std::min_element(
        machine.arrays.begin(), machine.arrays.end(),
        [&](const Array &a, const Array &b) { return distance(a) < distance(b); });
}

/* Where a group starts: behind a gap and a guard, aligned as at home. */
inline size_t place_behind(size_t end, const char *home)
{
    const size_t least = end + GAP + GUARD;
    return least + (reinterpret_cast<uintptr_t>(home) - least) % ALIGNMENT;
}

/* Sort the arrays into groups; the bytes that all of them take. */
inline size_t group_arrays()
{
    std::vector<const Array *> sorted;
    for (const Array &array : machine.arrays)
        sorted.push_back(&array);
    std::sort(sorted.begin(), sorted.end(),
              [](const Array *a, const Array *b) { return a->start < b->start; });
    arena.groups.clear();
    for (const Array *array : sorted) {
        Group *last = arena.groups.empty() ? nullptr : &arena.groups.back();
        const size_t bytes = array->bytes;
        if (!last || array->start >= last->home + last->bytes)
            arena.groups.push_back({array->start, nullptr, bytes, static_cast<int>(array->arg),
                                    array->writable != 0});
        else {
            last->bytes = std::max(last->bytes, array->start - last->home + bytes);
            last->writable = last->writable || array->writable;
        }
    }
    size_t end = 0;
    for (const Group &group : arena.groups)
        end = place_behind(end, group.home) + group.bytes;
    return end + GAP;
}

inline void drop_arena()
{
    if (arena.start)
        munmap(arena.start, arena.bytes);
    arena.start = nullptr, arena.bytes = 0;
}

/* Copy the arrays in and turn the arguments to the copies; false if there is no memory. */
inline bool place_arrays()
{
    const size_t bytes = group_arrays();
    if (bytes > arena.bytes) {
        drop_arena();
        void *memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED)
            return false;
        arena.start = static_cast<char *>(memory), arena.bytes = bytes;
    }
    size_t end = 0;
    for (Group &group : arena.groups) {
        const size_t start = place_behind(end, group.home);
        group.place = arena.start + start, end = start + group.bytes;
        memset(group.place - GUARD, CANARY, GUARD);
        memcpy(group.place, group.home, group.bytes);
        memset(arena.start + end, CANARY, GUARD);
    }
    for (Array &array : machine.arrays)
        for (const Group &group : arena.groups)
            if (array.start >= group.home && array.start < group.home + group.bytes) {
                const ptrdiff_t moved = group.place - group.home;
                machine.args[array.arg] += moved, array.start += moved;
                break;
            }
    return true;
}

/* Copy back what was not const; a guard that was written fails the launch. */
inline void return_arrays()
{
    for (const Group &group : arena.groups) {
        char *const end = group.place + group.bytes;
        for (size_t i = 0; i < GUARD && !machine.failed; i++)
            for (char *guard : {group.place - GUARD + i, end + i})
                if (static_cast<unsigned char>(*guard) != CANARY)
                    fail_launch("%s: byte %td of argument %d, which has %zu, was written",
                                machine.name, guard - group.place, group.arg, group.bytes);
        if (group.writable)
            memcpy(group.home, group.place, group.bytes);
    }
    if (arena.bytes > MOST_KEPT)
        drop_arena();
}

} // namespace emulator
