"""Each op against its reference twin, then its microseconds, on a CPU or a GPU."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from specrt.bench import device_ops, weight_types
from specrt.bench.arguments import add_json, names, positive, positive_number
from specrt.bench.op_calls import Call
from specrt.bench.op_cases import OPS, check_results
from specrt.bench.report import check_writable, collect, number, save, show
from specrt.bench.timing import interleaved, machine, timed
from specrt.bench.verify import DEVICES
from specrt.errors import OptionError
from specrt.host import HostOps, available_levels
from specrt.reference import ReferenceOps

SECONDS = 0.3
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
    parser.add_argument("--device", choices=DEVICES, default="cpu", help="what is timed")
    parser.add_argument("--threads", type=positive, metavar="N", help="of the CPU")
    parser.add_argument("--op", type=names, metavar="OP[,OP]", help=f"of {', '.join(OPS)}")
    parser.add_argument(
        "--level", type=names, metavar="L[,L]", help="instruction sets; all of the machine's"
    )
    parser.add_argument(
        "--types",
        type=names,
        nargs="?",
        const=[],
        metavar="T[,T]",
        help="instead: weight types on one core at each level; all of them",
    )
    parser.add_argument(
        "--seconds",
        type=positive_number,
        help=f"for a case: {SECONDS} at all levels; on a GPU {device_ops.SECONDS}; for a type: "
        f"{weight_types.SECONDS}",
    )


def run(args: argparse.Namespace) -> int:
    """Measure, print and save.

    Returns:
        1 if a GPU misses a bar.

    Raises:
        WrongResultError: an op differs from its twin.
        OptionError: no such op or level, or a device that has no times.
        UnsupportedError: there is no GPU that can be used.
    """
    check_writable(args.json)
    unknown = [name for name in args.op or () if name not in OPS]
    if unknown:
        raise OptionError(f"--op {', '.join(unknown)}: expected some of {', '.join(OPS)}")
    if args.device != "cpu":
        _check_device(args)
        return device_ops.run(args)
    levels = args.level or available_levels()
    if args.types is not None:
        if args.op or args.threads:
            raise OptionError("--types are products on one core: leave --op and --threads out")
        return weight_types.run(args, levels)
    host = {level: HostOps(args.threads, level) for level in levels}
    seconds = args.seconds or SECONDS
    times, complete = collect(measure(host, args.op or list(OPS), seconds))
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
        "settings": {"device": "cpu", "seconds": seconds},
        "results": times,
    }
    save(args.json, content)
    return 0 if complete else 130


def _check_device(args: argparse.Namespace) -> None:
    if args.device != "cuda":
        raise OptionError(
            f"--device {args.device}: it has no times that mean anything; check its results with "
            f"verify-kernels --device {args.device}"
        )
    if args.threads or args.level or args.types is not None:
        raise OptionError(
            "--threads, --level and --types are of the CPU: leave them out with --device cuda"
        )


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
    check_results(op, case, call.results(), expected)
    return call
