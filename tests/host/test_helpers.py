"""Who runs a program: all threads on idle cores, fewer where another process takes one."""

import os
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest

from specrt.host import HostOps
from specrt.host.helpers import BLOCK, CONTENDED, LONGEST, Decision, HelperPolicy


class Machine:
    """Runs take scripted seconds by their threads, and cores are short or not.

    Args:
        seconds: of a run on 1, 2 .. threads.
    """

    def __init__(self, *seconds: float, contended: bool = True, shared: Decision | None = None):
        self.seconds, self.contended = list(seconds), contended
        self.now = self.preempted = 0.0
        self.policy = HelperPolicy(
            shared or Decision(), lambda: self.now, lambda: int(self.preempted)
        )

    def run(self, runs: int, most: int | None = None) -> list[int]:
        """The threads of each run."""
        most = most or len(self.seconds)
        chosen = []
        for _ in range(runs):
            chosen.append(self.policy.num_threads(most))
            seconds = self.seconds[chosen[-1] - 1]
            self.now += seconds
            self.preempted += self.contended * 2 * CONTENDED * seconds
            self.policy.observe(most, seconds)
        return chosen


def test_on_idle_cores_nothing_is_tried():
    assert set(Machine(0.001, 0.004, contended=False).run(2000)) == {2}


def test_a_thread_that_delays_the_others_stays_out():
    chosen = Machine(0.005, 0.0075).run(1000)
    assert chosen[: 3 * BLOCK] == [2] * BLOCK + [1] * BLOCK + [2] * BLOCK
    assert chosen[3 * BLOCK :].count(1) > 0.9 * (1000 - 3 * BLOCK)


def test_a_thread_that_helps_is_missed_rarely():
    chosen = Machine(0.0075, 0.005).run(10000)
    starts = [i for i, (a, b) in enumerate(pairwise(chosen)) if (a, b) == (2, 1)]
    pauses = np.diff(starts)
    assert chosen.count(1) == BLOCK * len(starts)
    assert (np.diff(pauses) >= 0).all()
    assert pauses[-1] == BLOCK * (LONGEST + 2)


def test_a_thread_comes_back_when_the_cores_are_idle():
    machine = Machine(0.005, 0.0075)
    machine.run(1000)
    machine.seconds, machine.contended = [0.005, 0.0036], False
    chosen = machine.run(2 * BLOCK * LONGEST)
    assert chosen[-1] == 2
    assert set(machine.run(1000)) == {2}


def test_as_many_stay_out_as_it_takes():
    machine = Machine(0.020, 0.010, 0.012, 0.016)
    machine.run(2000)
    assert machine.run(1000).count(2) > 900


def test_a_single_stall_moves_nobody():
    """Both neighbours of a trial must be slower."""
    machine = Machine(0.005, 0.005)
    machine.run(BLOCK - 1)
    machine.seconds[1] = 0.05
    machine.run(1)
    machine.seconds[1] = 0.005
    assert machine.run(3000).count(1) < 300


def test_what_one_program_finds_holds_for_all_that_are_as_short():
    shared = Decision()
    Machine(0.005, 0.0075, shared=shared).run(1000)
    assert Machine(0.015, 0.017, shared=shared).run(3) == [2, 1, 1]
    assert set(Machine(0.2, 0.15, shared=shared).run(BLOCK)) == {2}
    machine = Machine(0.005, 0.0036, contended=False, shared=shared)
    machine.run(2 * BLOCK * LONGEST)
    assert Machine(0.008, 0.009, shared=shared).run(3) == [2, 2, 2]


def test_a_late_run_changes_neither_who_decides_nor_whose_a_trial_is():
    shared = Decision()
    machine = Machine(0.005, 0.0075, shared=shared)
    machine.run(3 * BLOCK - 1)
    machine.seconds[1] = 0.05  # the last run of a trial
    machine.run(1)
    machine.seconds[1] = 0.0075
    assert shared.num_out == 1 and machine.run(1) == [1]
    machine.seconds[0] = 0.05
    machine.run(1)
    machine.seconds[0] = 0.005
    assert machine.run(1) == [1]


def test_a_short_program_that_runs_rarely_leaves_the_others_together():
    shared = Decision()
    Machine(0.005, 0.0075, shared=shared).run(1000)
    Machine(0.0015, 0.002, shared=shared).run(BLOCK)
    assert Machine(0.008, 0.009, shared=shared).run(3) == [2, 1, 1]


@pytest.mark.parametrize("most", [1, 2])
def test_never_more_than_the_user_allows(most):
    machine = Machine(0.02, 0.01, 0.012, 0.016)
    machine.run(1000)
    assert max(machine.run(1000, most)) <= most
    assert min(machine.run(1000, most)) >= 1


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs a core for two processes")
def test_preemptions_are_counted():
    code = (
        "import os, subprocess, sys, time; from specrt.host.helpers import num_preempted\n"
        "os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])\n"
        "spin = 'import time; end = time.time() + 10\\nwhile time.time() < end: pass'\n"
        "other = subprocess.Popen([sys.executable, '-c', spin])\n"
        "before, end = num_preempted(), time.monotonic() + 5\n"
        "while num_preempted() < before + 10 and time.monotonic() < end: pass\n"
        "other.kill(); sys.exit(num_preempted() < before + 10)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize(("threads", "heard"), [(3, 4), (1, 0)])
def test_a_policy_hears_of_each_run_that_may_have_helpers(threads, heard):
    ops, most = HostOps(threads), []
    x = ops.buffer((1, 64), np.float32)
    with ops.record() as program:
        ops.copy(x + 1, out=x)
    program.policy.observe = lambda threads, seconds: most.append((threads, seconds > 0))
    for _ in range(4):
        program.prepare()
        program.run()
    assert most == [(threads, True)] * heard


def test_a_program_runs_on_what_its_policy_says_and_other_ops_on_all():
    ops = HostOps(3)
    x, out = ops.buffer((5, 64), np.float32), ops.buffer((5, 64), np.float32)
    x[:] = np.arange(320, dtype=np.float32).reshape(5, 64)
    with ops.record() as program:
        ops.copy(x, out=out)
    program.policy = Machine(0.01, 0.01).policy
    program.policy.num_threads = lambda most: 1
    program.run()
    assert ops._team.num_threads == 1
    assert ops.threads == 3
    assert (out == x).all()
    ops.rms_norm(x, None, 1e-5, out=out)
    assert ops._team.num_threads == 3
