"""Timing by interleaved pairs, and the arithmetic of what is reported."""

from __future__ import annotations

import gc
import resource
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from specrt.errors import SpecrtError

TAIL = 64


class WrongResultError(SpecrtError):
    """What was to be timed gave a wrong result, so no time is reported."""


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of several values with the least and the greatest."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Of at least one value."""
        return cls(statistics.median(values), min(values), max(values))


def ratios(plain: Sequence[float], other: Sequence[float]) -> Spread:
    """How many times faster the other one is, from seconds in pairs."""
    return Spread.of([before / after for before, after in zip(plain, other, strict=True)])


def geometric_mean(values: Sequence[float]) -> float:
    """The mean of ratios."""
    return statistics.geometric_mean(values)


def interleaved(first: Callable[[], None], second: Callable[[], None], pairs: int) -> None:
    """Call both in turn, and swap who comes first: drift of the machine hits both alike."""
    for pair in range(pairs):
        for call in (first, second) if pair % 2 == 0 else (second, first):
            gc.collect()
            call()


def best_seconds(call: Callable[[], None], least: float = 0.05, rounds: int = 5) -> float:
    """Seconds of one call: the median over rounds of enough calls each.

    Args:
        least: seconds that a round takes at least.
    """
    count, spent = 1, _seconds(call, 1)
    while spent < least and count < 1 << 20:
        count = max(2 * count, int(count * least / max(spent, 1e-9)))
        spent = _seconds(call, count)
    return statistics.median(_seconds(call, count) / count for _ in range(rounds))


def _seconds(call: Callable[[], None], count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        call()
    return time.perf_counter() - start


def is_degenerate(tokens: Sequence[int], tail: int = TAIL) -> bool:
    """True if the last tokens are one cycle, gone through at least twice."""
    last = list(tokens[-tail:])
    if len(last) < tail:
        return False
    return any(last[period:] == last[:-period] for period in range(1, tail // 2 + 1))


def peak_memory() -> int:
    """The most bytes that this process has had in memory."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
