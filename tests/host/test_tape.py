"""The tape and its team: the same bits with any threads, at any time, forked, oversubscribed."""

import ctypes
import os
import platform
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
from kv_data import make_step

from specrt._ext.host_ops import MAX_PARTS, MAX_THREADS, Tape, Team
from specrt.host import HostOps

ROWS, WIDTH, PHASES = 23, 333, 40
libm = ctypes.CDLL(None)


class Chain:
    """A tape in which each phase reads all that the one before it wrote."""

    def __init__(self, threads, phases=PHASES, rows=ROWS):
        self.ops = HostOps(threads=threads)
        self.x = self.ops.buffer((rows, WIDTH), np.float32)
        self.turned = self.ops.buffer((rows, WIDTH), np.float32)
        norm = np.random.default_rng(2).uniform(0.5, 2, WIDTH).astype(np.float32)
        shifted = self.x.reshape(-1)[1:-2].reshape(1, -1)
        with self.ops.record() as self.program:
            for _ in range(phases // 4):
                self.ops.glu(self.x, self.turned, activation="gelu_tanh", out=self.turned)
                self.ops.rms_norm(self.turned, norm, 1e-6, out=self.turned)
                self.ops.rms_norm(self.x, norm, 1e-5, add=self.turned, out=self.x)
                self.ops.copy(shifted, out=self.turned.reshape(-1)[2:-1].reshape(1, -1))

    def run(self):
        start = np.random.default_rng(1).standard_normal((2, *self.x.shape), dtype=np.float32)
        self.x[:], self.turned[:] = start
        self.program.run()
        return self.x.tobytes() + self.turned.tobytes()


@pytest.fixture(scope="module")
def expected():
    bits = Chain(1).run()
    assert np.isfinite(np.frombuffer(bits, np.float32)).all()
    return bits


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_threads_change_nothing(threads, expected):
    chain = Chain(threads)
    assert chain.program.num_phases == PHASES
    assert all(chain.run() == expected for _ in range(20))


def test_timed_runs_are_runs_and_tell_each_phase(expected):
    chain, times = Chain(2), []
    program = chain.program
    chain.program = SimpleNamespace(run=lambda: times.extend(program.run_timed()))
    assert chain.run() == expected
    assert [name for name, _ in times[:4]] == ["glu", "rms_norm", "rms_norm", "copy"]
    assert len(times) == PHASES and all(0 < seconds < 1 for _, seconds in times)
    assert Tape(0).run_timed() == []


def test_phases_without_parts_are_left_out_with_their_names():
    empty, x = np.zeros((0, 64), np.float32), np.ones((2, 64), np.float32)
    ops = HostOps(threads=1)
    with ops.record() as program:
        ops.copy(x, out=x.copy())
        ops.rms_norm(empty, None, 1e-5, out=empty)
        ops.rms_norm(x, None, 1e-5, out=x)
    assert [name for name, _ in program.run_timed()] == ["copy", "rms_norm"]


def test_phases_have_a_most_of_parts():
    x = np.zeros((MAX_PARTS + 1, 1), np.float32)
    index = np.zeros(MAX_PARTS + 1, np.int32)
    ops = HostOps(threads=2)
    ops.select(x, index[1:], out=x[1:].copy())
    with pytest.raises(ValueError, match=f"select has {MAX_PARTS + 1} parts"):
        ops.select(x, index, out=x.copy())


def test_threads_can_be_changed_between_any_runs(expected):
    chain = Chain(3)
    for threads in (3, 1, 2, 5, 1, 1, 4, 2):
        chain.ops.threads = threads
        assert chain.ops.threads == threads
        assert chain.run() == expected and chain.run() == expected


def test_threads_can_be_changed_from_another_thread_while_tapes_run(expected):
    chain, stop = Chain(2), threading.Event()

    def change():
        while not stop.is_set():
            for threads in (1, 3, 2):
                chain.ops.threads = threads

    changer = threading.Thread(target=change)
    changer.start()
    try:
        assert all(chain.run() == expected for _ in range(200))
    finally:
        stop.set()
        changer.join()


def test_tapes_of_one_team_run_one_after_another():
    ops = HostOps(threads=2)
    sources = np.random.default_rng(3).standard_normal((4, 50, 64), dtype=np.float32)
    outs, programs = np.zeros_like(sources), []
    for x, out in zip(sources, outs, strict=True):
        with ops.record() as program:
            for _ in range(50):
                ops.rms_norm(x, None, 1e-6, out=out)
        programs.append(program)
    runners = [
        threading.Thread(target=lambda p=program: [p.run() for _ in range(20)])
        for program in programs
    ]
    for runner in runners:
        runner.start()
    for runner in runners:
        runner.join()
    for x, out in zip(sources, outs, strict=True):
        once = np.zeros_like(out)
        HostOps(threads=1).rms_norm(x, None, 1e-6, out=once)
        assert (out == once).all()


def test_scratch_grows_for_threads_that_came_before_and_after():
    ops = HostOps(threads=3)
    q = np.ones((1, 256), np.float32)
    for dims, threads in ((16, 3), (32, 1), (64, 2), (128, 4), (256, 3)):
        cache, step = ops.kv_layer(1, 256 // dims, dims, "f16", 0), ops.step_inputs(1, 1, 1, 0)
        ops.threads = threads
        out = np.full_like(q, np.nan)
        ops.attention(q, cache, step, scale=1.0, window=0, out=out)
        assert (out == 0).all()


def test_many_short_runs():
    chain = Chain(2, phases=4, rows=3)
    expected = Chain(1, phases=4, rows=3).run()
    assert all(chain.run() == expected for _ in range(3000))


@pytest.mark.parametrize("threads, parts", [(2, 16), (3, 16), (3, 2), (5, 2), (5, 3)])
def test_phases_of_one_part_and_of_many_take_turns(threads, parts):
    """Also of fewer parts than there are threads, some of which then have no share."""
    ops, one = HostOps(threads=threads), np.ones((1, 64), np.float32)
    many = np.random.default_rng(6).standard_normal((parts, 8), dtype=np.float32)
    out = np.zeros_like(many)
    with ops.record() as program:
        for _ in range(500):
            ops.rms_norm(one, None, 1e-5, out=one)
            ops.copy(many, out=out)
    for _ in range(1500 // threads):
        out[:] = 0
        program.run()
        assert (out == many).all()


def test_oversubscribed_teams_finish(expected):
    """More threads than processors, beside busy processes, in bounded time."""
    busy = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"])
        for _ in range(os.cpu_count() or 1)
    ]
    try:
        chain, start = Chain(2 * (os.cpu_count() or 1) + 1), time.monotonic()
        assert all(chain.run() == expected for _ in range(30))
        assert time.monotonic() - start < 20
    finally:
        for process in busy:
            process.kill()
            process.wait()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_makes_its_own_helpers(expected):
    chain = Chain(2)
    assert chain.run() == expected
    running = threading.Thread(target=lambda: [chain.program.run() for _ in range(300)])
    running.start()  # the fork meets the team in the middle of a run
    child = os.fork()
    if child == 0:
        helpers_before = len(os.listdir("/proc/self/task")) if os.path.isdir("/proc") else 1
        same = chain.run() == expected and chain.run() == expected
        helpers = len(os.listdir("/proc/self/task")) if os.path.isdir("/proc") else 2
        chain = None
        os._exit(0 if same and (helpers_before, helpers) == (1, 2) else 1)
    running.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert chain.run() == expected


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_attends_right_wherever_the_fork_met_its_parent():
    """Groups of chunks are counted: what the parent had counted must not count in the child."""
    ops, rng = HostOps(threads=2), np.random.default_rng(7)
    q = rng.standard_normal((2, 128), dtype=np.float32)
    out, step = np.zeros_like(q), make_step(ops, [700, 701], [0, 0], 16)
    caches = [ops.kv_layer(16, 2, 64, "f16", 0) for _ in range(8)]
    for cache in caches:
        cache.k[:] = rng.standard_normal(cache.k.shape)
        cache.v[:] = rng.standard_normal(cache.v.shape)
    with ops.record() as program:
        for cache in caches:
            ops.attention(q, cache, step, scale=0.1, window=0, out=out)

    def attend():
        out[:] = np.nan
        program.run()
        return out.tobytes()

    right = attend()
    stop = threading.Event()
    running = threading.Thread(target=lambda: [program.run() for _ in iter(stop.is_set, True)])
    running.start()
    try:
        for _ in range(40):
            child = os.fork()
            if child == 0:
                os._exit(0 if attend() == right and attend() == right else 1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        stop.set()
        running.join()


def test_a_process_exits_with_helpers_asleep_and_spinning():
    code = (
        "import numpy as np; from specrt.host import HostOps; ops = HostOps(threads=3)\n"
        "x = np.ones((64, 512), np.float32)\n"
        "for _ in range(5): ops.rms_norm(x, None, 1e-5, out=x)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], timeout=30, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")


def test_helpers_end_with_their_team():
    if not os.path.isdir("/proc/self/task"):
        pytest.skip("counts threads in /proc")
    before = len(os.listdir("/proc/self/task"))
    chain = Chain(4)
    chain.run()
    assert len(os.listdir("/proc/self/task")) == before + 3
    del chain
    assert len(os.listdir("/proc/self/task")) == before


@pytest.mark.skipif(
    platform.machine() != "x86_64" or platform.libc_ver()[0] != "glibc", reason="sets MXCSR"
)
@pytest.mark.parametrize("threads", [1, 2])
def test_the_callers_float_environment_is_neither_used_nor_lost(threads, expected):
    chain, before, during, after = Chain(threads), *(np.zeros(8, np.uint32) for _ in range(3))
    start = np.random.default_rng(1).standard_normal((2, *chain.x.shape), dtype=np.float32)
    tiny, doubled = np.full((64, 64), 1e-41, np.float32), np.zeros((64, 64), np.float32)
    with chain.ops.record() as subnormals:
        chain.ops.rms_norm(np.zeros_like(tiny), None, 1.0, add=tiny, out=doubled)
    chain.x[:], chain.turned[:] = start
    libm.fegetenv(before.ctypes.data_as(ctypes.c_void_p))
    wanted = before.copy()
    wanted[7] |= 0x8040 | 0x2000  # flush to zero, denormals are zero, round down
    libm.fesetenv(wanted.ctypes.data_as(ctypes.c_void_p))
    chain.program.run()
    subnormals.run()
    libm.fegetenv(during.ctypes.data_as(ctypes.c_void_p))
    libm.fesetenv(before.ctypes.data_as(ctypes.c_void_p))
    libm.fegetenv(after.ctypes.data_as(ctypes.c_void_p))
    assert during[7] & 0xE040 == 0xA040 and after[7] & 0xE040 == before[7] & 0xE040
    assert chain.x.tobytes() + chain.turned.tobytes() == expected
    assert doubled.tobytes() == tiny.tobytes()


def test_an_empty_tape_runs_and_wrong_numbers_of_threads_are_refused():
    Tape(0).run()
    for threads in (0, -1, MAX_THREADS + 1):
        with pytest.raises(ValueError, match="threads"):
            Team(threads)
