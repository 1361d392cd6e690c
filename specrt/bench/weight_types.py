"""All weight types on one core: products with matrices that no cache holds, at each level."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from specrt._ext.host_ops import packed_bytes
from specrt.acts import input_form
from specrt.bench.cases import MATRIX, TYPES, LinearCase
from specrt.bench.machine_speed import CACHES, largest_cache
from specrt.bench.op_calls import Call, random_tensor
from specrt.bench.op_cases import OPS, check_results, linear_call, prepared_rows
from specrt.bench.report import collect, number, save, show
from specrt.bench.timing import WrongResultError, interleaved, machine, timed
from specrt.errors import OptionError
from specrt.host import HostOps
from specrt.ops import Program
from specrt.reference import ReferenceOps

ROWS = (1, 4, 8)
SECONDS = 2.0
LEAST_ROUNDS, MOST_ROUNDS = 3, 100


@dataclass(frozen=True, slots=True)
class TypeSpeed:
    """One weight type and number of rows at one level.

    Args:
        bytes_per_weight: in the file.
        packed_bytes_per_weight: as the kernels read it.
        gigabytes_per_second: of the file's bytes, by one thread; median.
        gigaproducts_per_second: multiply-adds, likewise.
    """

    type: str
    level: str
    rows: int
    bytes_per_weight: float
    packed_bytes_per_weight: float
    gigabytes_per_second: float
    gigaproducts_per_second: float
    rounds: int


def run(args: argparse.Namespace, levels: Sequence[str]) -> int:
    """Measure, print and save.

    Raises:
        WrongResultError: a product differs from its twin.
        OptionError: no such type or level.
    """
    kinds = args.types or list(TYPES)
    unknown = [kind for kind in kinds if kind not in TYPES]
    if unknown:
        raise OptionError(f"--types {', '.join(unknown)}: expected some of {', '.join(TYPES)}")
    host = {level: HostOps(1, level) for level in levels}
    seconds = args.seconds or SECONDS
    speeds, complete = collect(measure(host, kinds, seconds))
    show_speeds(speeds, levels)
    content = {
        "bench": "weight types",
        "complete": complete,
        "machine": machine(1) | {"level": ", ".join(levels)},
        "settings": {"seconds": seconds, "matrix": MATRIX, "cold_bytes": cold_bytes()},
        "results": speeds,
    }
    save(args.json, content)
    return 0 if complete else 130


def cold_bytes() -> int:
    """That are read before anything is read again."""
    return CACHES * largest_cache()


def measure(
    host: Mapping[str, HostOps], kinds: Sequence[str], seconds: float
) -> Iterator[TypeSpeed]:
    """Type after type, its levels and rows interleaved."""
    for kind in kinds:
        cases = [LinearCase(kind, *MATRIX, rows) for rows in ROWS]
        programs: dict[tuple[str, int], tuple[Callable[[], None], int, int]] = {}
        for level, ops in host.items():
            for case, calls in zip(cases, checked_copies(ops, cases), strict=True):
                program = _one_after_the_other(ops, calls)
                programs[level, case.rows] = program.run, len(calls), calls[0].num_bytes
        runs = {key: run for key, (run, _, _) in programs.items()}
        once = sum(timed(run) for run in runs.values())
        rounds = int(min(max(seconds / once, LEAST_ROUNDS), MOST_ROUNDS))
        samples = interleaved(runs, rounds)
        weights = MATRIX[0] * MATRIX[1]
        packed = packed_bytes(kind, input_form(kind, "int8"), MATRIX)
        for (level, rows), (_, copies, num_bytes) in programs.items():
            each = float(np.median(samples[level, rows])) / copies
            yield TypeSpeed(
                type=kind,
                level=level,
                rows=rows,
                bytes_per_weight=num_bytes / weights,
                packed_bytes_per_weight=packed / weights,
                gigabytes_per_second=num_bytes / each / 1e9,
                gigaproducts_per_second=rows * weights / each / 1e9,
                rounds=rounds,
            )


def checked_copies(ops: HostOps, cases: Sequence[LinearCase]) -> list[list[Call]]:
    """For each case its calls over distinct copies of the matrix, together too large for a cache.

    Raises:
        WrongResultError: one differs from the reference, or from the first copy.
    """
    tensor = random_tensor(cases[0].type, cases[0].outputs, cases[0].width)
    weights = [
        ops.weight(replace(tensor, raw=tensor.raw.copy()))
        for _ in range(max(1, -(-cold_bytes() // tensor.nbytes)))
    ]
    found = []
    for case in cases:
        acts = prepared_rows(ops, case, weights[0])
        calls = [linear_call(ops, case, weight, acts, tensor.nbytes) for weight in weights]
        first = calls[0].results()
        twin = OPS["linear"].bind(ReferenceOps(), OPS["linear"].twin(case)).results()
        check_results("linear", case, first, twin)
        for call in calls[1:]:
            if any(a.tobytes() != b.tobytes() for a, b in zip(call.results(), first, strict=True)):
                raise WrongResultError(f"linear {case}: a copy of its matrix gives other bits")
        found.append(calls)
    return found


def _one_after_the_other(ops: HostOps, calls: Sequence[Call]) -> Program:
    with ops.record() as program:
        for call in calls:
            call.op()
    return program


def show_speeds(speeds: Sequence[TypeSpeed], levels: Sequence[str]) -> None:
    """A line for each type; GB/s of each level and number of rows."""
    by_type: dict[str, dict[tuple[str, int], TypeSpeed]] = {}
    for one in speeds:
        by_type.setdefault(one.type, {})[one.level, one.rows] = one
    columns = [(level, rows) for level in levels for rows in ROWS]
    show(
        "Weight types on one core, each equal to its twin: GB/s of the file's bytes, none cached",
        ("type", "bits", "packed", *(f"{level} T={rows}" for level, rows in columns)),
        [
            (
                kind,
                number(8 * next(iter(found.values())).bytes_per_weight),
                number(8 * next(iter(found.values())).packed_bytes_per_weight),
                *(number(found[key].gigabytes_per_second, 1) for key in columns),
            )
            for kind, found in by_type.items()
            if all(key in found for key in columns)
        ],
    )
