"""Ops on a GPU: checked against the reference, then timed by its own clock with a cold L2."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from specrt.bench.device_cases import GROUPS
from specrt.bench.device_copies import COLD, copies
from specrt.bench.op_calls import Call
from specrt.bench.op_cases import OPS, check_results
from specrt.bench.report import Bound, bound_rows, collect, number, save, show, show_bounds, spread
from specrt.bench.timing import Spread, WrongResultError, interleaved, machine
from specrt.kernels import KernelOps
from specrt.kernels.cuda import CudaDevice
from specrt.ops import Array, Program
from specrt.reference import ReferenceOps

SECONDS = 0.05
LEAST_CALLS = 32
"""In a program: launching it takes no part of its time."""
LEAST_ROUNDS, MOST_ROUNDS = 5, 100
COPY_SIZE = 16
"""Times the L2 that is copied."""
COPY_ROW = 64 << 10
"""Bytes; the kernel's threads move 16 each, whatever the rows are."""
COPIES = 4

COPY_SHARE = 0.7
"""Of the bandwidth of a copy, the least that a product of one row may have."""
EIGHT_ROWS = 1.25
"""Of the time of one row, the most that a product of eight may take."""


@dataclass(frozen=True, slots=True)
class DeviceTime:
    """One case.

    Args:
        case: its sizes.
        microseconds: of one call among others like it, from the GPU's clock.
        gigabytes_per_second: of weights, cached keys and values, or rows; at the median.
        copy_share: that, of the bandwidth of a copy.
        cold: what it reads was not in the L2; where it was, as rows are in a step, a share of a
            copy's bandwidth says little.
    """

    op: str
    case: dict[str, Any]
    microseconds: Spread
    gigabytes_per_second: float
    copy_share: float
    cold: bool
    rounds: int


def run(args: argparse.Namespace) -> int:
    """Measure, print and save.

    Returns:
        1 if a bar is missed.

    Raises:
        WrongResultError: an op differs from its twin.
        UnsupportedError: there is no GPU that can be used.
    """
    device = CudaDevice(verbose=True)
    ops = KernelOps(device)
    speed = copy_bandwidth(ops, device)
    seconds = args.seconds or SECONDS
    times, complete = collect(measure(ops, device, args.op or list(GROUPS), seconds, speed))
    print(f"{device.facts['gpu']}: a copy reads and writes {speed:.0f} GB/s")
    show_times(times)
    bounds = bounds_of(times)
    show_bounds(bounds)
    content = {
        "bench": "ops",
        "complete": complete,
        "machine": machine() | device.facts,
        "settings": {"device": "cuda", "seconds": seconds, "cold": COLD},
        "copy_gigabytes_per_second": speed,
        "results": times,
        "bounds": bound_rows(bounds),
    }
    save(args.json, content)
    if not complete:
        return 130
    return 0 if all(bound.holds for bound in bounds) else 1


def copy_bandwidth(ops: KernelOps, device: CudaDevice) -> float:
    """Gigabytes a second that ``copy`` reads and writes, of arrays far larger than the L2.

    Raises:
        WrongResultError: a row was not copied.
    """
    num_rows = -(-COPY_SIZE * device.l2_bytes // COPY_ROW)
    x, out = (ops.buffer((num_rows, COPY_ROW), np.uint8) for _ in range(2))
    row = np.random.default_rng(0).integers(0, 256, COPY_ROW, np.uint8)
    ops.assign(x[0], row)
    filled = 1
    while filled < num_rows:
        more = min(filled, num_rows - filled)
        ops.copy(x[:more], out=x[filled : filled + more])
        filled += more
    with ops.record() as program:
        for _ in range(COPIES):
            ops.copy(x, out=out)
    program.run()
    for at in (0, num_rows // 2, num_rows - 1):
        if (ops.to_host(out[at]) != row).any():
            raise WrongResultError(f"copy: row {at} of {num_rows} differs")
    program.prepare()
    microseconds = float(np.median([device.timed(program) for _ in range(LEAST_ROUNDS)]))
    return COPIES * 2 * x.nbytes / microseconds / 1e3


def measure(
    ops: KernelOps, device: CudaDevice, names: Sequence[str], seconds: float, copy_speed: float
) -> Iterator[DeviceTime]:
    """Case after case; those that differ in their rows alone are timed in turns."""
    for op in names:
        for cases in GROUPS[op]:
            found = checked_copies(ops, op, cases, device.l2_bytes)
            calls = [list(of_case) for of_case in zip(*found, strict=True)]
            cold = len(found) * calls[0][0].num_bytes >= COLD * device.l2_bytes
            samples = _timed(ops, device, calls, seconds)
            for case, (call, *_), of_case in zip(cases, calls, samples, strict=True):
                time = Spread.of(of_case)
                speed = call.num_bytes / time.median / 1e3
                share = speed / copy_speed
                yield DeviceTime(op, asdict(case), time, speed, share, cold, len(of_case))


def checked_copies(
    ops: KernelOps, op: str, cases: Sequence[Any], l2_bytes: int
) -> list[list[Call]]:
    """Each copy's calls, once the first copy's results are the reference's and all are equal.

    Raises:
        WrongResultError: they are not.
    """
    found = copies(ops, op, cases, l2_bytes)
    first = [call.results() for call in found[0]]
    for case, got in zip(cases, first, strict=True):
        expected = OPS[op].bind(ReferenceOps(), OPS[op].twin(case)).results()
        check_results(op, case, got, expected)
    for calls in islice(found, 1, None):
        for case, call, expected in zip(cases, calls, first, strict=True):
            if list(map(_bytes, call.results())) != list(map(_bytes, expected)):
                raise WrongResultError(f"{op} {case}: a copy of its data gives other bits")
    return found


def _bytes(array: Array) -> bytes:
    return bytes(array.tobytes())


def _timed(
    ops: KernelOps, device: CudaDevice, calls: Sequence[Sequence[Call]], seconds: float
) -> list[list[float]]:
    """Microseconds of a call, for each case as often as it was timed."""
    programs = [_program(ops, of_case) for of_case in calls]
    once = sum(device.timed(program) for program, _ in programs) / len(programs)
    rounds = int(min(max(1e6 * seconds / (2 * once), LEAST_ROUNDS), MOST_ROUNDS))
    timed = {index: partial(device.timed, program) for index, (program, _) in enumerate(programs)}
    samples = interleaved(timed, rounds, clock=lambda call: call())
    return [[one / count for one in samples[index]] for index, (_, count) in enumerate(programs)]


def _program(ops: KernelOps, calls: Sequence[Call]) -> tuple[Program, int]:
    """The calls one after the other, again and again, and how many they are; kernels have run."""
    rounds = -(-LEAST_CALLS // len(calls))
    with ops.record() as program:
        for _ in range(rounds):
            for call in calls:
                call.op()
    program.run()
    program.prepare()
    return program, rounds * len(calls)


def bounds_of(times: Sequence[DeviceTime]) -> list[Bound]:
    """Of products, by type: the least share of a copy at one row, and the most of eight rows."""
    bounds = []
    products = [time for time in times if time.op in ("linear", "head")]
    for op, kind in dict.fromkeys((time.op, time.case["type"]) for time in products):
        by_shape: dict[tuple[int, int], dict[int, DeviceTime]] = {}
        for time in products:
            if (time.op, time.case["type"]) == (op, kind):
                shape = time.case["outputs"], time.case["width"]
                by_shape.setdefault(shape, {})[time.case["rows"]] = time
        shares = [rows[1].copy_share for rows in by_shape.values() if 1 in rows]
        ratios = [
            rows[8].microseconds.median / rows[1].microseconds.median
            for rows in by_shape.values()
            if {1, 8} <= set(rows)
        ]
        if shares:
            name = f"{op} {kind}, T = 1: of a copy's bandwidth, least shape"
            bounds.append(Bound(name, min(shares), COPY_SHARE))
        if ratios:
            name = f"{op} {kind}, T = 8: of the time of T = 1, most shape"
            bounds.append(Bound(name, max(ratios), EIGHT_ROWS, at_most=True))
    return bounds


def show_times(times: Sequence[DeviceTime]) -> None:
    """A line for each case."""
    show(
        "Ops on the GPU, each equal to its twin; in microseconds, median (least..most)",
        ("op", "case", "L2", "us", "GB/s", "of a copy"),
        [
            (
                time.op,
                " ".join(f"{name}={value}" for name, value in time.case.items()),
                "cold" if time.cold else "hot",
                spread(time.microseconds),
                number(time.gigabytes_per_second, 1),
                f"{time.copy_share:.0%}",
            )
            for time in times
        ],
        num_texts=3,
    )
