"""The host op set's C side: the tape, and one recording function per op.

Each op's recording function stands in host/<op>.pxi; it checks nothing that the launcher in
specrt/host/<op>.py has checked already, fills the op's C struct and appends one phase.
"""

from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy

cdef extern from "kernel.h":
    ctypedef void kernel_fn(const void *args, int part, void *scratch) noexcept nogil
    int ISA_PORTABLE, ISA_AVX2, ISA_AVX512

cdef extern from "tape.h":
    struct phase:
        kernel_fn *run
        const void *args
        int num_parts
    struct tape:
        phase *phases
        int num_phases
        size_t scratch_bytes


cdef class Tape:
    """The phases of one recorded step, with references to every buffer that they name."""

    cdef tape tape
    cdef list owned
    cdef readonly int level

    def __cinit__(self, int level):
        self.level = level
        self.owned = []

    def __dealloc__(self):
        for i in range(self.tape.num_phases):
            free(<void *>self.tape.phases[i].args)
        free(self.tape.phases)

    cdef append(self, kernel_fn *run, const void *args, size_t size, int num_parts,
                size_t scratch_bytes, tuple owned):
        """Append one phase: args (size bytes) is copied, the objects in owned are kept alive."""
        cdef tape *t = &self.tape
        cdef phase *phases = <phase *>realloc(t.phases, (t.num_phases + 1) * sizeof(phase))
        if phases == NULL:
            raise MemoryError
        t.phases = phases
        cdef void *copy = malloc(size)
        if copy == NULL:
            raise MemoryError
        memcpy(copy, args, size)
        phases[t.num_phases].run = run
        phases[t.num_phases].args = copy
        phases[t.num_phases].num_parts = num_parts
        t.num_phases += 1
        t.scratch_bytes = max(t.scratch_bytes, scratch_bytes)
        self.owned.append(owned)

    def run(self):
        """Run every phase."""
        cdef int i, part
        cdef void *scratch = malloc(self.tape.scratch_bytes + 64)
        if scratch == NULL:
            raise MemoryError
        cdef void *aligned = <void *>((<size_t>scratch + 63) & ~<size_t>63)
        with nogil:
            for i in range(self.tape.num_phases):
                for part in range(self.tape.phases[i].num_parts):
                    self.tape.phases[i].run(self.tape.phases[i].args, part, aligned)
        free(scratch)


include "host/linear.pxi"
