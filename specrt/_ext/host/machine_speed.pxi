# Recording of what measures the machine itself.

from libc.stdint cimport int64_t, uint32_t, uint64_t

cdef extern from "machine_speed.h":
    int _MULTIPLY_CHAINS "MULTIPLY_CHAINS"
    ctypedef struct ReadMemoryArgs "struct read_memory_args":
        const char *memory
        uint64_t *sums
        size_t num_bytes
        size_t part_bytes
    ctypedef struct MultiplyArgs "struct multiply_args":
        int64_t steps
        uint32_t *ends

cdef extern from *:
    """
    static kernel_fn *read_memory_kernel(int level) { return SELECT_KERNEL(read_memory, level); }
    static kernel_fn *multiply_ints_kernel(int level)
    {
        return SELECT_KERNEL(multiply_ints, level);
    }
    static kernel_fn *multiply_floats_kernel(int level)
    {
        return SELECT_KERNEL(multiply_floats, level);
    }
    """
    kernel_fn *read_memory_kernel(int level)
    kernel_fn *multiply_ints_kernel(int level)
    kernel_fn *multiply_floats_kernel(int level)

MULTIPLY_CHAINS = _MULTIPLY_CHAINS


def record_read_memory(Tape tape, memory, sums, size_t part_bytes):
    """Append one phase that reads memory [N] uint8, a part for each of sums [parts] uint64."""
    cdef ReadMemoryArgs args
    args.memory = <const char *>address(memory)
    args.sums = <uint64_t *>address(sums)
    args.num_bytes, args.part_bytes = memory.nbytes, part_bytes
    tape.append("read_memory", read_memory_kernel(tape.level), &args, sizeof(args), len(sums), 0, (memory, sums))


def record_multiply_ints(Tape tape, ends, int64_t steps):
    """Append one phase of integer multiply-adds, a part for each of ends [parts] uint32."""
    _record_multiply(tape, multiply_ints_kernel(tape.level), ends, steps)


def record_multiply_floats(Tape tape, ends, int64_t steps):
    """Append one phase of float multiply-adds, a part for each of ends [parts] float32."""
    _record_multiply(tape, multiply_floats_kernel(tape.level), ends, steps)


cdef _record_multiply(Tape tape, kernel_fn *run, ends, int64_t steps):
    cdef MultiplyArgs args
    args.steps = steps
    args.ends = <uint32_t *>address(ends)
    tape.append("peak", run, &args, sizeof(args), len(ends), 0, (ends,))
