"""Each op of a device against the reference: equal bits, or as near to the truth as float32 is."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from specrt.bench.arguments import add_json, names
from specrt.bench.op_cases import OPS
from specrt.bench.oracle import OracleOps
from specrt.bench.report import check_writable, collect, save, show
from specrt.bench.timing import machine
from specrt.bench.verify_cases import CHECKS
from specrt.devices import make_ops
from specrt.errors import OptionError
from specrt.ops import Array, Ops
from specrt.reference import ReferenceOps

FLOOR = 1e-6
"""Error that is allowed where float32 code has none by luck, of the largest exact value."""

DEVICES = ("cpu", "cuda", "emulator", "reference")


@dataclass(frozen=True, slots=True)
class Verified:
    """One case.

    Args:
        case: its sizes.
        exact: its bits are the reference's, or should be.
        share: the largest error, as a share of what is allowed; None where bits are compared.
        different: values whose bits differ, of those that are compared by bits.
    """

    op: str
    case: dict[str, Any]
    exact: bool
    share: float | None
    different: int

    @property
    def holds(self) -> bool:
        """True if it is as it must be; a NaN is not."""
        return self.different == 0 if self.share is None else self.share <= 1


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The flags of this command."""
    parser.add_argument("--device", choices=DEVICES, default="emulator", help="what is verified")
    parser.add_argument("--op", type=names, metavar="OP[,OP]", help="only these")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Verify, print a line per op and type, and every case that fails, and save.

    Returns:
        1 if a case fails.

    Raises:
        OptionError: no such op.
    """
    check_writable(args.json)
    known = list(dict.fromkeys(check.op for check in CHECKS))
    unknown = [name for name in args.op or () if name not in known]
    if unknown:
        raise OptionError(f"--op {', '.join(unknown)}: expected some of {', '.join(known)}")
    ops = make_ops(args.device)
    results, complete = collect(verify(ops, args.op or known))
    show(
        f"Ops on {ops.device} against the reference",
        ("op", "type", "cases", "error, of what is allowed", "holds"),
        list(_rows(results)),
        num_texts=2,
    )
    failed = [one for one in results if not one.holds]
    for one in failed:
        print(f"{one.op} {_words(one.case)}: {_verdict(one)}")
    content = {
        "bench": "verify-kernels",
        "complete": complete,
        "machine": machine(),
        "settings": {"device": ops.device, "floor": FLOOR},
        "results": [asdict(one) | {"holds": one.holds} for one in results],
    }
    save(args.json, content)
    if not complete:
        return 130
    return 1 if failed else 0


def verify(ops: Ops, names: Sequence[str]) -> Iterator[Verified]:
    """Case after case of these ops."""
    for check in CHECKS:
        if check.op not in names:
            continue
        for case in check.cases:
            yield verify_case(ops, check.op, case, check.exact)


def verify_case(ops: Ops, op: str, case: Any, exact: bool) -> Verified:
    """One case beside its reference."""
    bench = OPS[op]
    got = bench.bind(ops, case).results()
    reference = bench.bind(ReferenceOps(), case).results()
    got = [mine[..., : twin.shape[-1]] for mine, twin in zip(got, reference, strict=True)]
    if exact:
        different = sum(_different(*pair) for pair in zip(got, reference, strict=True))
        return Verified(op, asdict(case), exact, None, different)
    oracle = bench.bind(OracleOps(), bench.twin(case)).results()
    shares = [error_share(*three) for three in zip(got, reference, oracle, strict=True)]
    return Verified(op, asdict(case), exact, float(np.max(shares)), 0)


def error_share(got: Array, baseline: Array, exact: Array) -> float:
    """Largest error over twice that of plain float32 code plus a floor; NaN if one is NaN.

    Args:
        got: what is verified.
        baseline: plain float32 code's.
        exact: float64.
    """
    error, allowed = (np.abs(x - exact.astype(np.float64)).max() for x in (got, baseline))
    return float(error / (2 * allowed + FLOOR * np.abs(exact).max()))


def _different(got: Array, reference: Array) -> int:
    if got.dtype != reference.dtype or got.shape != reference.shape:
        return max(got.size, reference.size)
    same = np.ascontiguousarray(got).view(np.uint8) == np.ascontiguousarray(reference).view(
        np.uint8
    )
    return int((~same.reshape(*got.shape, -1).all(axis=-1)).sum())


def _rows(results: Sequence[Verified]) -> Iterator[tuple[str, ...]]:
    """A line per op and type: its cases, and the worst of them."""
    groups: dict[tuple[str, str, bool], list[Verified]] = {}
    for one in results:
        groups.setdefault((one.op, _type(one.case), one.exact), []).append(one)
    for (op, kind, exact), group in groups.items():
        worst = max(group, key=lambda one: (not one.holds, one.share or 0))
        holds = "yes" if worst.holds else "NO"
        yield op, kind, str(len(group)), "equal bits" if exact else _verdict(worst), holds


def _type(case: dict[str, Any]) -> str:
    words = [str(case[key]) for key in ("type", "kv_type", "activation", "role") if key in case]
    return " ".join(word for word in words if word)


def _words(case: dict[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in case.items())


def _verdict(one: Verified) -> str:
    return f"{one.different} values differ" if one.share is None else f"{one.share:.2f}"
