"""Fewer threads where other processes take the cores: a program finds out what is fastest now."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from statistics import median_low

import numpy as np

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

ALIKE = 4.0
"""Times as long as the program that found out: those that take less are alike."""

SHORTEST, LONGEST = 4, 64
"""Blocks between two trials; every one that fails doubles the pause."""


class Decision:
    """How many threads stay out, and when to ask again; of one program, or of all that are alike.

    Attributes:
        num_out: threads that stay out.
        level: seconds of the program that tried last, in a median run.
        pause, wait: blocks between two trials, and those left until the next one.
        failed: threads that the last trial tried in vain, None after one that was not.
    """

    def __init__(self) -> None:
        self.num_out = 0
        self.level = math.inf
        self.pause, self.wait = SHORTEST, 0
        self.failed: int | None = None

    def end_trial(self, num_out: int, faster: bool, level: float) -> None:
        """Take what was tried, or ask again twice as late."""
        self.level = level
        if faster:
            self.num_out = num_out
        self.pause = SHORTEST if faster else min(2 * self.pause, LONGEST)
        self.failed, self.wait = (None if faster else num_out), self.pause


class HelperPolicy:
    """Chooses how many of the threads run a program, by its own times.

    A thread that shares its core with another process holds parts while it waits for it, and all
    others wait for these. Where preemptions tell that cores are short, one thread less is tried for
    a block of runs, between two blocks with the present number, and stays out if both were slower.
    A thread that is out is tried again now and then in the same way. On idle cores nothing is ever
    tried.

    What one program finds holds for all that take less than four times as long, since most of them
    run too rarely to find out. A longer one, as of a prefill, decides alone: there, a late part is
    a small part.

    Args:
        shared: with the other programs of the team.
        clock: in seconds.
        num_preempted: of this process since it began.
    """

    def __init__(
        self,
        shared: Decision,
        clock: Callable[[], float] = time.perf_counter,
        num_preempted: Callable[[], int] = num_preempted,
    ) -> None:
        self.clock = clock
        self._num_preempted = num_preempted
        self._shared, self._own = shared, Decision()
        self._decision = self._own  # the one in force
        self._least = math.inf  # of all runs: a late one is not to change who decides
        self._block: list[float] = []
        self._begin = (0.0, 0)  # of the block
        self._trial: int | None = None  # threads out
        self._times: list[float] = []  # of a trial: before, meanwhile
        self._tried: int | None = None  # the trial's threads while they are out

    def num_threads(self, most: int) -> int:
        """For the next run, 1 .. ``most``."""
        tried = self._tried
        num_out = self._decision.num_out if tried is None else tried
        return most - num_out if num_out < most else 1

    def observe(self, most: int, seconds: float) -> None:
        """Hear what a run with ``num_threads(most)`` took, which ended now."""
        if seconds < self._least:
            self._least = seconds
            self._choose()
        if not self._block:
            self._begin = (self.clock() - seconds, self._num_preempted())
        self._block.append(seconds)
        if len(self._block) == BLOCK:
            level = median_low(self._block)
            self._block.clear()
            if self._trial is None:
                self._consider(most, level)
            else:
                self._go_on(level, self._trial)

    def _choose(self) -> None:
        """Who decides; a trial goes on for whom it began."""
        if self._trial is None:
            alike = self._least < ALIKE * self._shared.level
            self._decision = self._shared if alike else self._own

    def _consider(self, most: int, level: float) -> None:
        """Begin a trial, where there is reason for one."""
        self._choose()
        decision = self._decision
        decision.num_out = num_out = min(decision.num_out, most - 1)
        decision.wait -= 1
        if decision.wait > 0:
            return
        begin, preempted = self._begin
        rate = (self._num_preempted() - preempted) / max(self.clock() - begin, 1e-9)
        trials = [num_out + 1] * (rate >= CONTENDED and num_out + 1 < most)
        trials += [num_out - 1] * (num_out > 0)
        if len(trials) > 1 and trials[0] == decision.failed:
            trials.reverse()
        if trials:
            self._trial = self._tried = trials[0]
            self._times = [level]

    def _go_on(self, level: float, trial: int) -> None:
        """Another block of a trial is done."""
        self._times.append(level)
        self._tried = None
        if len(self._times) == 3:
            before, meanwhile, after = self._times
            self._decision.end_trial(trial, meanwhile < GAIN * min(before, after), meanwhile)
            self._trial = None


class Threads:
    """What all programs of a team share.

    Attributes:
        most: as the user set it last.
        decision: of all programs that are alike.
    """

    def __init__(self, most: int) -> None:
        self.most, self.decision = most, Decision()


class SteadyTape(Tape):
    """A recorded step that runs with as many threads as are fastest now, whatever they compute.

    Args:
        level: of its kernels.
        team: whose threads.
        threads: what all programs of the team share.
    """

    def __init__(self, level: int, team: Team, threads: Threads) -> None:
        self.policy = HelperPolicy(threads.decision)
        self._threads = threads

    def prepare(self) -> None:
        """Wake the threads that will run."""
        self._set_threads()
        Tape.prepare(self)

    def run(self) -> None:
        """Run every phase."""
        self._set_threads()
        policy, most = self.policy, self._threads.most
        begin = policy.clock()
        Tape.run(self)
        if most > 1:
            policy.observe(most, policy.clock() - begin)

    def repeat(self, times: int, until: np.ndarray) -> int:
        """Run up to ``times`` times, as long as ``until[0]`` is 0 before; returns how often."""
        self._set_threads()
        policy, most = self.policy, self._threads.most
        begin = policy.clock()
        done = Tape.repeat(self, times, until)
        if done and most > 1:
            policy.observe(most, (policy.clock() - begin) / done)
        return done

    def run_timed(self) -> list[tuple[str, float]]:
        """Run every phase; returns (its op, its seconds) of each."""
        self._set_threads()
        return Tape.run_timed(self)

    def _set_threads(self) -> None:
        wanted = self.policy.num_threads(self._threads.most)
        if self.team.num_threads != wanted:
            self.team.num_threads = wanted
