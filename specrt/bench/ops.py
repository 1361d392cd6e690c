"""Each op against its reference twin, then its microseconds."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from specrt.bench.arguments import add_json, names, positive, positive_number
from specrt.bench.op_calls import Call
from specrt.bench.op_cases import OPS
from specrt.bench.report import check_writable, collect, number, save, show
from specrt.bench.timing import WrongResultError, interleaved, machine, timed
from specrt.errors import OptionError
from specrt.host import HostOps, available_levels
from specrt.reference import ReferenceOps

FLOAT_ERROR = 1e-5
"""Where host and reference differ by rounding: of the largest value."""
LEAST_ROUNDS, MOST_ROUNDS = 5, 2000


@dataclass(frozen=True, slots=True)
class OpTime:
    """One case at one instruction set.

    Args:
        case: its sizes.
        microseconds: median.
        gigabytes_per_second: of weights, cached keys and values, or rows.
    """

    op: str
    case: dict[str, Any]
    level: str
    microseconds: float
    gigabytes_per_second: float
    rounds: int


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The flags of this benchmark."""
    add_json(parser)
    parser.add_argument("--threads", type=positive, metavar="N", help="of the CPU")
    parser.add_argument("--op", type=names, metavar="OP[,OP]", help=f"of {', '.join(OPS)}")
    parser.add_argument(
        "--level", type=names, metavar="L[,L]", help="instruction sets; all of the machine's"
    )
    parser.add_argument(
        "--seconds", type=positive_number, default=0.3, help="for a case at all levels"
    )


def run(args: argparse.Namespace) -> int:
    """Measure, print and save.

    Raises:
        WrongResultError: an op differs from its twin.
        OptionError: no such op or level.
    """
    check_writable(args.json)
    unknown = [name for name in args.op or () if name not in OPS]
    if unknown:
        raise OptionError(f"--op {', '.join(unknown)}: expected some of {', '.join(OPS)}")
    host = {level: HostOps(args.threads, level) for level in args.level or available_levels()}
    times, complete = collect(measure(host, args.op or list(OPS), args.seconds))
    show(
        "Ops, each equal to its twin",
        ("op", "case", "level", "us", "GB/s"),
        [
            (
                one.op,
                " ".join(f"{name}={value}" for name, value in one.case.items()),
                one.level,
                number(one.microseconds, 1),
                number(one.gigabytes_per_second, 1),
            )
            for one in times
        ],
        num_texts=3,
    )
    content = {
        "bench": "ops",
        "complete": complete,
        "machine": machine(args.threads) | {"level": ", ".join(host)},
        "settings": {"seconds": args.seconds},
        "results": times,
    }
    save(args.json, content)
    return 0 if complete else 130


def measure(host: dict[str, HostOps], ops: Sequence[str], seconds: float) -> Iterator[OpTime]:
    """Case after case, all levels of a case interleaved."""
    for op in ops:
        for case in OPS[op].cases:
            calls = {level: checked_call(op, case, on) for level, on in host.items()}
            once = sum(timed(call.run) for call in calls.values())
            rounds = int(min(max(seconds / once, LEAST_ROUNDS), MOST_ROUNDS))
            samples = interleaved({level: call.run for level, call in calls.items()}, rounds)
            for level, call in calls.items():
                median = float(np.median(samples[level]))
                speed = call.num_bytes / median / 1e9
                yield OpTime(op, asdict(case), level, median * 1e6, speed, rounds)


def checked_call(op: str, case: Any, host: HostOps) -> Call:
    """The call on the host, once its results are the reference's.

    Raises:
        WrongResultError: they are not.
    """
    bench = OPS[op]
    call = bench.bind(host, case)
    expected = bench.bind(ReferenceOps(), bench.twin(case)).results()
    for got, twin in zip(call.results(), expected, strict=True):
        got = got[..., : twin.shape[-1]]
        if bench.exact:
            same = np.array_equal(np.ascontiguousarray(got).view(np.uint8), twin.view(np.uint8))
        else:
            same = bool((np.abs(got - twin) <= FLOAT_ERROR * np.abs(twin).max()).all())
        if not same:
            raise WrongResultError(f"{op} {case}: the host differs from the reference")
    return call
