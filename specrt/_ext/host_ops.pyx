"""The host op set's C side: the team of threads, the tape, and one recording function per op.

Each op's recording function stands in host/<op>.pxi; it checks nothing that the launcher in
specrt/host/<op>.py has checked already, fills the op's C struct and appends its phases.
"""

import numpy as np

from libc.stdint cimport int64_t
from cpython.buffer cimport PyBUF_STRIDES, PyBuffer_Release, PyObject_GetBuffer

cdef extern from "kernel.h":
    ctypedef void kernel_fn(const void *args, int part, void *scratch) noexcept nogil
    int isa_detect()

cdef extern from "tape.h":
    struct phase:
        kernel_fn *run
        void *args
    int _MAX_PARTS "MAX_PARTS"
    struct tape:
        phase *phases
        int num_phases
    int tape_append(tape *t, kernel_fn *run, const void *args, size_t size, int num_parts)
    void tape_count(tape *t, int *counters, int num_counters)
    void tape_drop_last(tape *t)
    void tape_clear(tape *t)

cdef extern from "team.h":
    struct team:
        pass
    int _MAX_THREADS "MAX_THREADS"
    team *team_create()
    void team_destroy(team *t) nogil
    int team_set_threads(team *t, int num_threads) nogil
    int team_reserve(team *t, size_t scratch_bytes, size_t shared_bytes) nogil
    void team_run(team *t, const tape *tape, int64_t *ends) nogil
    void team_call(team *t) nogil
    int team_threads(const team *t)
    void **team_shared(const team *t)

MAX_PARTS, MAX_THREADS = _MAX_PARTS, _MAX_THREADS


def detect_level():
    """The best level of this machine: 0 portable, 1 avx2, 2 avx512."""
    return isa_detect()


cdef void *address(array) except? NULL:
    """Where an array's bytes start; None is NULL. Tapes keep the arrays that they name."""
    cdef Py_buffer view
    if array is None:
        return NULL
    PyObject_GetBuffer(array, &view, PyBUF_STRIDES)
    PyBuffer_Release(&view)
    return view.buf


cdef class Team:
    """Threads that run tapes, one tape at a time; 1 .. MAX_THREADS, settable between any runs."""

    cdef team *team

    def __cinit__(self, int num_threads=1):
        self.team = team_create()
        if self.team == NULL:
            raise MemoryError
        self.num_threads = num_threads

    def __dealloc__(self):
        with nogil:
            team_destroy(self.team)

    @property
    def num_threads(self):
        return team_threads(self.team)

    @num_threads.setter
    def num_threads(self, int num_threads):
        cdef int failed
        if not 1 <= num_threads <= _MAX_THREADS:
            raise ValueError(f"{num_threads} threads; expected 1 to {_MAX_THREADS}")
        with nogil:
            failed = team_set_threads(self.team, num_threads)
        if failed:
            raise MemoryError

    cdef reserve(self, size_t scratch_bytes, size_t shared_bytes):
        """Grow what each thread has for itself, and what all share."""
        cdef int failed
        with nogil:
            failed = team_reserve(self.team, scratch_bytes, shared_bytes)
        if failed:
            raise MemoryError


cdef class Tape:
    """The phases of one recorded step, with references to every buffer that they name.

    Without a team it runs on one of its own, of one thread.
    """

    cdef tape tape
    cdef list owned, names
    cdef readonly int level
    cdef readonly Team team

    def __cinit__(self, int level, Team team=None, *_):
        self.level = level
        self.team = Team() if team is None else team
        self.owned, self.names = [], []

    def __dealloc__(self):
        tape_clear(&self.tape)

    @property
    def num_phases(self):
        return self.tape.num_phases

    cdef append(self, str name, kernel_fn *run, const void *args, size_t size, int num_parts,
                size_t scratch_bytes, tuple owned):
        """Append one phase: args (size bytes) is copied, the objects in owned are kept alive.

        name is the op's, beside what tells its phases apart. One without parts is left out.
        """
        if num_parts == 0:
            return
        self.team.reserve(scratch_bytes, 0)
        if num_parts > _MAX_PARTS:
            raise ValueError(f"{name} has {num_parts} parts; expected at most {_MAX_PARTS}")
        if tape_append(&self.tape, run, args, size, num_parts):
            raise MemoryError
        self.owned.append(owned)
        self.names.append(name)

    cdef count(self, int *counters, int num_counters):
        """Give the last phase counters, which its owned objects hold."""
        tape_count(&self.tape, counters, num_counters)

    cdef kernel_fn *last_kernel(self):
        """What the last phase runs; NULL without one."""
        return self.tape.phases[self.tape.num_phases - 1].run if self.tape.num_phases else NULL

    cdef const void *last_args(self):
        return self.tape.phases[self.tape.num_phases - 1].args

    cdef tuple drop_last(self):
        """Take the last phase back; returns what it kept alive."""
        tape_drop_last(&self.tape)
        self.names.pop()
        return self.owned.pop()

    def prepare(self):
        """Wake the threads, since a run follows: that takes as long as to fill in the step."""
        with nogil:
            team_call(self.team.team)

    def run(self):
        """Run every phase."""
        with nogil:
            team_run(self.team.team, &self.tape, NULL)

    def repeat(self, int times, const int[:] until):
        """Run up to ``times`` times, as long as ``until[0]`` is 0 before; returns how often."""
        cdef int done = 0
        with nogil:
            while done < times and until[0] == 0:
                team_run(self.team.team, &self.tape, NULL)
                done += 1
        return done

    def run_timed(self):
        """Run every phase; returns [(its op, its seconds)], waits for other threads included."""
        cdef int64_t[:] ends = np.zeros(self.tape.num_phases, np.int64)
        with nogil:
            team_run(self.team.team, &self.tape, &ends[0] if ends.shape[0] else NULL)
        seconds = np.diff(np.asarray(ends), prepend=0) / 1e9
        return list(zip(self.names, seconds.tolist(), strict=True))


include "host/kv.pxi"
include "host/linear.pxi"
include "host/accept.pxi"
include "host/attention.pxi"
include "host/block_conv.pxi"
include "host/copy.pxi"
include "host/draft.pxi"
include "host/glu.pxi"
include "host/load_rows.pxi"
include "host/lattice.pxi"
include "host/markov.pxi"
include "host/recurrent.pxi"
include "host/machine_speed.pxi"
include "host/moe.pxi"
include "host/rms_norm.pxi"
include "host/rope_kv.pxi"
include "host/route.pxi"
include "host/sample.pxi"
include "host/scale.pxi"
include "host/select.pxi"
include "host/store_rows.pxi"
