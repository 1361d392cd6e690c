/* The thread sanitiser's view of the machine, where it is compiled in (-fsanitize=thread).
 *
 * It takes each fibre for a thread, knows a switch as no order, and learns of order at barriers
 * alone: by a token that those who come release and those who leave acquire. It is told to look
 * away while the machine minds its own state. Blocks are in no order, launches are.
 */
#include <cstddef>

#ifdef __SANITIZE_THREAD__
extern "C" {
void *__tsan_get_current_fiber(void);
void *__tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void *fiber);
void __tsan_switch_to_fiber(void *fiber, unsigned flags);
void __tsan_acquire(void *address);
void __tsan_release(void *address);
void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);
void AnnotateIgnoreWritesBegin(const char *file, int line);
void AnnotateIgnoreWritesEnd(const char *file, int line);
}
#endif

namespace emulator {

#ifdef __SANITIZE_THREAD__
constexpr bool SANITIZED = true;
constexpr unsigned NO_ORDER = 1; /* of a switch: __tsan_switch_to_fiber_no_sync */

inline void *watched_thread() { return __tsan_get_current_fiber(); }
inline void *watch_thread() { return __tsan_create_fiber(0); }
inline void forget_thread(void *thread) { __tsan_destroy_fiber(thread); }
inline void watch_switch(void *thread) { __tsan_switch_to_fiber(thread, NO_ORDER); }
inline void acquire(char *token) { __tsan_acquire(token); }
inline void release(char *token) { __tsan_release(token); }

/* While one is alive, what its thread reads and writes goes unseen. */
struct Unwatched {
    Unwatched()
    {
        AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
        AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
    }
    ~Unwatched()
    {
        AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
        AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
    }
    Unwatched(const Unwatched &) = delete;
};
#else
constexpr bool SANITIZED = false;

inline void *watched_thread() { return nullptr; }
inline void *watch_thread() { return nullptr; }
inline void forget_thread(void *) {}
inline void watch_switch(void *) {}
inline void acquire(char *) {}
inline void release(char *) {}
struct Unwatched {
    ~Unwatched() {} /* or a variable of it would count as unused */
};
#endif

} // namespace emulator
