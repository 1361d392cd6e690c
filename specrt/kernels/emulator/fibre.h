/* Fibres: stacks that one OS thread switches between, in about 10 ns (ucontext takes 500). */
#include <cstddef>
#include <cstdint>
#include <sys/mman.h>

#if !defined(__x86_64__)
#error "the emulator switches stacks by x86-64 assembler"
#endif

namespace emulator {

constexpr size_t STACK_BYTES = 64 << 10, PAGE_BYTES = 4096;

/* Save what a call preserves on this stack and its pointer in *from; go on from the pointer to. */
extern "C" __attribute__((visibility("hidden"))) void specrt_switch(void **from, void *to);
asm(R"(
    .text
    .globl specrt_switch
    .hidden specrt_switch
    .type specrt_switch, @function
specrt_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size specrt_switch, .-specrt_switch
)");

/* Memory for one fibre after another; below each lies a page that faults, so that an overflow ends
 * the process rather than another fibre. nullptr if there is no memory. */
inline char *new_stack()
{
    void *memory = mmap(nullptr, STACK_BYTES + PAGE_BYTES, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory, PAGE_BYTES, PROT_NONE))
        return nullptr;
    return static_cast<char *>(memory) + PAGE_BYTES;
}

inline void drop_stack(char *stack) { munmap(stack - PAGE_BYTES, STACK_BYTES + PAGE_BYTES); }

/* The pointer from which specrt_switch calls entry, which must not return. */
inline void *first_frame(char *stack, void (*entry)())
{
    void **top = reinterpret_cast<void **>(stack + STACK_BYTES);
    for (int i = 1; i <= 8; i++)
        top[-i] = nullptr; /* six registers, entry, and the return address that entry lacks */
    top[-2] = reinterpret_cast<void *>(entry);
    return top - 8;
}

} // namespace emulator
