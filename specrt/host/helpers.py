"""Fewer threads where other processes take the cores: a program finds out what is fastest now."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median_low

from .._ext.host_ops import Tape, Team

try:
    from resource import RUSAGE_SELF, getrusage
except ImportError:  # a system that does not tell: all threads run, always

    def num_preempted() -> int:
        """Never."""
        return 0

else:

    def num_preempted() -> int:
        """How often a thread of this process had to leave a core to somebody else."""
        return getrusage(RUSAGE_SELF).ru_nivcsw


BLOCK = 8
"""Runs whose median counts as one time."""

CONTENDED = 250.0
"""Preemptions a second from which on cores are short; on idle ones there are up to 130."""

GAIN = 0.95
"""Of the time with the present number of threads: another one must take less."""

SHORTEST, LONGEST = 4, 64
"""Blocks between two trials; every one that fails doubles the pause."""


class HelperPolicy:
    """Chooses how many of the threads run a program, by its own times.

    A thread that shares its core with another process holds parts while it waits for it, and all
    others wait for these. Where preemptions tell that cores are short, one thread less is tried for
    a block of runs, between two blocks with the present number, and stays out if both were slower.
    A thread that is out is tried again now and then in the same way. On idle cores nothing is ever
    tried.

    Args:
        clock: in seconds.
        num_preempted: of this process since it began.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.perf_counter,
        num_preempted: Callable[[], int] = num_preempted,
    ) -> None:
        self.clock = clock
        self._num_preempted = num_preempted
        self._block: list[float] = []
        self._begin = (0.0, 0)  # of the block
        self._num_out = 0
        self._step = 0  # of a trial, to more threads (1) or fewer (-1)
        self._failed = 0  # step of the last one
        self._times: list[float] = []  # of a trial: before, meanwhile
        self._pause, self._wait = SHORTEST, 0

    def num_threads(self, most: int) -> int:
        """For the next run, 1 .. ``most``."""
        trying = self._step if len(self._times) == 1 else 0
        return min(most, max(1, most - self._num_out + trying))

    def observe(self, most: int, seconds: float) -> None:
        """Hear what a run with ``num_threads(most)`` took, which ended now."""
        if not self._block:
            self._begin = (self.clock() - seconds, self._num_preempted())
        self._block.append(seconds)
        if len(self._block) == BLOCK:
            level = median_low(self._block)
            self._block.clear()
            if self._step:
                self._go_on(level)
            else:
                self._consider(most, level)

    def _consider(self, most: int, level: float) -> None:
        """Begin a trial, where there is reason for one."""
        self._num_out = min(self._num_out, most - 1)
        self._wait -= 1
        if self._wait > 0:
            return
        begin, preempted = self._begin
        rate = (self._num_preempted() - preempted) / max(self.clock() - begin, 1e-9)
        steps = [-1] * (rate >= CONTENDED and most - self._num_out > 1) + [1] * (self._num_out > 0)
        if len(steps) > 1 and steps[0] == self._failed:
            steps.reverse()
        if steps:
            self._step, self._times = steps[0], [level]

    def _go_on(self, level: float) -> None:
        """Another block of a trial is done."""
        self._times.append(level)
        if len(self._times) < 3:
            return
        before, meanwhile, after = self._times
        if meanwhile < GAIN * min(before, after):
            self._num_out -= self._step
            self._pause, self._failed = SHORTEST, 0
        else:
            self._pause, self._failed = min(2 * self._pause, LONGEST), self._step
        self._step, self._times, self._wait = 0, [], self._pause


class SteadyTape(Tape):
    """A recorded step that runs with as many threads as are fastest now, whatever they compute.

    Args:
        level: of its kernels.
        team: whose threads.
        most_threads: as the user set it last.
    """

    def __init__(self, level: int, team: Team, most_threads: Callable[[], int]) -> None:
        self.policy = HelperPolicy()
        self._most_threads = most_threads

    def prepare(self) -> None:
        """Wake the threads that will run."""
        self._set_threads()
        super().prepare()

    def run(self) -> None:
        """Run every phase."""
        most = self._set_threads()
        begin = self.policy.clock()
        super().run()
        if most > 1:
            self.policy.observe(most, self.policy.clock() - begin)

    def run_timed(self) -> list[tuple[str, float]]:
        """Run every phase; returns (its op, its seconds) of each."""
        self._set_threads()
        return super().run_timed()

    def _set_threads(self) -> int:
        """Returns the most there could be."""
        most, team = self._most_threads(), self.team
        wanted = self.policy.num_threads(most)
        if team.num_threads != wanted:
            team.num_threads = wanted
        return most
