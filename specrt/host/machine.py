"""What this machine offers: instruction sets and processors."""

from __future__ import annotations

import os
from pathlib import Path

from .._ext.host_ops import MAX_THREADS, detect_level
from ..errors import OptionError, UnsupportedError

LEVELS = {"portable": 0, "avx2": 1, "avx512": 2}
"""Instruction sets by rising level; each has all of the lower ones."""


def choose_level(name: str | None) -> int:
    """The level of that name; None for ``SPECRT_CPU``, and without it the machine's best.

    Raises:
        OptionError: there is no such name.
        UnsupportedError: the machine lacks some of its instructions.
    """
    name = name or os.environ.get("SPECRT_CPU") or None
    best = detect_level()
    if name is None:
        return best
    if name not in LEVELS:
        raise OptionError(f"SPECRT_CPU or level {name!r}: expected one of {', '.join(LEVELS)}")
    if LEVELS[name] > best:
        has = ", ".join(known for known, level in LEVELS.items() if level <= best)
        raise UnsupportedError(f"this machine does not run {name}; it runs {has}")
    return LEVELS[name]


def choose_threads(num_threads: int | None) -> int:
    """That many; None for the smallest of affinity, cgroup quota and cores.

    Raises:
        OptionError: not 1 .. 256.
    """
    if num_threads is None:
        cpus = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(_all_cpus())
        return max(1, min(len(cpus), _num_cores(cpus), _quota(), MAX_THREADS))
    if not 1 <= num_threads <= MAX_THREADS:
        raise OptionError(f"threads = {num_threads}: expected 1 to {MAX_THREADS}")
    return num_threads


def _all_cpus() -> range:
    return range(os.cpu_count() or 1)


def _num_cores(cpus: set[int]) -> int:
    """Physical cores among the CPUs: siblings of one core share its arithmetic units."""
    topology = Path("/sys/devices/system/cpu")
    return len({_text(topology / f"cpu{n}/topology/thread_siblings_list") or str(n) for n in cpus})


def _quota() -> int:
    """CPUs that the cgroups, from the process's own up to the root, allow; rounded up."""
    limits = [MAX_THREADS]
    for line in _text(Path("/proc/self/cgroup")).splitlines():
        _, controllers, group = line.split(":", 2)
        root = Path("/sys/fs/cgroup") / (controllers and "cpu")
        if controllers and "cpu" not in controllers.split(","):
            continue
        for folder in (Path(group), *Path(group).parents):
            limits += _limit(root / folder.relative_to("/"))
    return min(limits)


def _limit(folder: Path) -> list[int]:
    """The quota that one cgroup sets, version 2 or 1, if it does."""
    words = _text(folder / "cpu.max").split() or [
        _text(folder / "cpu.cfs_quota_us"),
        _text(folder / "cpu.cfs_period_us"),
    ]
    if not all(word.isdigit() for word in words):  # "max", "-1" or no such file
        return []
    quota, period = map(int, words)
    return [max(1, -(-quota // period))]


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
