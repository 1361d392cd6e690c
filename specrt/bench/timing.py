"""Times that can be compared: interleaved calls, medians, and the machine that they are of."""

from __future__ import annotations

import gc
import os
import platform
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from specrt.host import available_levels
from specrt.host.machine import LEVELS, choose_level, choose_threads

K = TypeVar("K")


class WrongResultError(Exception):
    """A result is not what it must be, so no time is told for it."""


@dataclass(frozen=True, slots=True)
class Spread:
    """A median with the least and the most of its samples."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, samples: Sequence[float]) -> Spread:
        """Of at least one sample."""
        return cls(float(np.median(samples)), float(min(samples)), float(max(samples)))


@dataclass(frozen=True, slots=True)
class Latency:
    """Microseconds of one call."""

    median: float
    p999: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Latency:
        """Of at least one sample."""
        median, p999 = np.quantile(np.asarray(seconds) * 1e6, [0.5, 0.999])
        return cls(float(median), float(p999))


def timed(call: Callable[[], object]) -> float:
    """Seconds of one call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def rounds_of(
    calls: Mapping[K, Callable[[], Any]],
    rounds: int,
    clock: Callable[[Callable[[], Any]], float] = timed,
) -> Iterator[dict[K, float]]:
    """Round after round what the clock gives for each call, every other round backwards.

    What slows the machine for a while slows all of them alike.
    """
    for number in range(rounds):
        order = list(calls)[:: -1 if number % 2 else 1]
        yield {name: clock(calls[name]) for name in order}


def interleaved(
    calls: Mapping[K, Callable[[], Any]],
    rounds: int,
    clock: Callable[[Callable[[], Any]], float] = timed,
) -> dict[K, list[float]]:
    """The samples of each call, as ``rounds_of`` takes them."""
    done = list(rounds_of(calls, rounds, clock))
    return {name: [samples[name] for samples in done] for name in calls}


@contextmanager
def collector_off() -> Iterator[None]:
    """As timeit has it: a collection is not the work of the call that it falls into."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def peak_memory() -> int:
    """The most bytes that this process has had in memory."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def machine(threads: int | None = None, level: str | None = None) -> dict[str, str | int]:
    """What a time depends on; nothing that names the machine or its user.

    Args:
        threads: as the op set was made with.
        level: likewise.
    """
    names = {number: name for name, number in LEVELS.items()}
    return {
        "cpu": _cpu_name(),
        "cores": os.cpu_count() or 1,
        "level": names[choose_level(level)],
        "levels": ", ".join(available_levels()),
        "threads": choose_threads(threads),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "numpy": np.__version__,
        "specrt": _own_version(),
    }


def model_file(path: Path) -> dict[str, str | int]:
    """A model by its file's name and size."""
    return {"file": path.name, "bytes": path.stat().st_size}


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _own_version() -> str:
    try:
        return version("specrt")
    except PackageNotFoundError:
        return "not installed"
