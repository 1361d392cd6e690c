"""Steps of T rows against what bounds them: reading their bytes, and computing their products."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from specrt.bench.arguments import (
    add_contexts,
    add_json,
    contexts_for,
    positive,
    positive_number,
    positives,
)
from specrt.bench.floor_results import (
    MachineSpeed,
    Part,
    Prefill,
    Step,
    bounds_of,
    judged,
    machine_speeds,
    prefilled,
)
from specrt.bench.floor_steps import FloorSteps
from specrt.bench.report import (
    bound_rows,
    check_writable,
    collect,
    number,
    save,
    show,
    show_bounds,
    spread,
)
from specrt.bench.timing import machine, model_file
from specrt.cli import flags
from specrt.errors import OptionError
from specrt.gguf.reader import open_gguf
from specrt.host import HostOps
from specrt.llm import find_model
from specrt.models import check_architecture
from specrt.models.loader import Dims
from specrt.ops import KVType
from specrt.options import MAX_DRAFT
from specrt.settings import KV_TYPE, THREADS

BARS = {1: 1.33, 4: 1.8, 8: 2.8}
"""Floors that a greedy verify of T rows may take."""
PREFILL = 512


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The flags of this benchmark."""
    parser.add_argument("--model", metavar="FILE", help="a GGUF file, or a name that was pulled")
    add_contexts(parser)
    parser.add_argument(
        "--rows",
        type=positives,
        default=list(BARS),
        metavar="T[,T]",
        help="of a verify (default: 1,4,8)",
    )
    told = ",".join(f"{rows}:{bar:g}" for rows, bar in BARS.items())
    parser.add_argument(
        "--bars",
        type=_bars,
        default=BARS,
        metavar="T:F[,T:F]",
        help=f"floors that a greedy verify may take (default: {told})",
    )
    text = f"of a prefill, less than the model's context (default: {PREFILL})"
    parser.add_argument("--prefill", type=positive, default=PREFILL, metavar="N", help=text)
    parser.add_argument(
        "--rounds", type=positive, default=15, metavar="N", help="samples of each (default: 15)"
    )
    flags.add_settings(parser, "model", [THREADS, KV_TYPE])
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Measure, print and save.

    Raises:
        WrongResultError: rows depend on how many there are.
        SpecrtError: a flag or the model is impossible.
    """
    check_writable(args.json)
    if max(args.rows) > MAX_DRAFT + 1:
        raise OptionError(f"--rows {max(args.rows)}: expected at most {MAX_DRAFT + 1}")
    gguf = open_gguf(find_model(args.model))
    check_architecture(gguf)
    prefill = min(args.prefill, Dims.read(gguf).context - 1)  # a row is checked behind it
    contexts = contexts_for(gguf, args.contexts, max(args.rows))
    context = max(max(contexts) + max(args.rows), prefill + 1)
    kv_type: KVType = args.kv_type or "f16"
    ops = HostOps(args.threads)
    steps = FloorSteps(gguf, ops, context, kv_type, contexts, args.rows, prefill)
    steps.check()
    rounds, complete = collect(steps.rounds(args.rounds))
    amounts = {key: speed.amount for key, speed in steps.speeds.items()}
    speeds = list(machine_speeds(rounds, amounts)) if rounds else []
    found, parts = judged(gguf, kv_type, rounds, amounts, args.bars) if rounds else ([], [])
    filled = prefilled(gguf, kv_type, rounds, amounts) if rounds else None
    show_speeds(speeds)
    show_steps(found)
    show_parts(parts)
    if filled is not None:
        show_prefill(filled)
    bounds = bounds_of(found)
    show_bounds(bounds)
    content = {
        "bench": "floors",
        "complete": complete,
        "machine": machine(args.threads),
        "model": model_file(gguf.path),
        "settings": {"rounds": len(rounds), "kv_type": kv_type, "bars": args.bars},
        "speeds": speeds,
        "steps": found,
        "parts": parts,
        "prefill": filled,
        "bounds": bound_rows(bounds),
    }
    save(args.json, content)
    return 0 if complete else 130


def show_speeds(speeds: Sequence[MachineSpeed]) -> None:
    """GB/s, and 10^9 multiply-adds a second."""
    show(
        "The machine alone, in the same rounds: GB/s read, or 10^9 multiply-adds a second",
        ("what", "threads", "median (least..most)"),
        [(one.what, str(one.threads), spread(one.giga_per_second)) for one in speeds],
    )


def show_steps(steps: Sequence[Step]) -> None:
    """Time, floors, factor and verdict."""
    show(
        "A verify of T rows; its factor is over the floor that is named",
        ("mode", "T", "context", "ms (least..most)", "bytes ms", "roofline ms", "floor",
         "factor (least..most)", "of least", "bar", "holds"),
        [
            (
                step.mode,
                str(step.rows),
                str(step.cached),
                spread(step.ms),
                number(step.byte_floor_ms),
                number(step.roofline_ms),
                step.floor,
                spread(step.factor),
                number(step.least_factor),
                number(step.bar),
                "" if step.bar is None else "yes" if step.factor.median <= step.bar else "no",
            )
            for step in steps
        ],
    )  # fmt: skip


def show_parts(parts: Sequence[Part]) -> None:
    """Trunk, head and attention apart."""
    show(
        "Its parts: what it takes more than without them, at the least; the floor is the roofline",
        (
            "part",
            "T",
            "context",
            "ms",
            "MB",
            "packed MB",
            "int GMAC",
            "float GMAC",
            "floor ms",
            "factor",
        ),
        [
            (
                one.part,
                str(one.rows),
                str(one.cached),
                number(one.ms),
                number(one.touched.num_bytes / 1e6, 1),
                number(one.touched.packed_bytes / 1e6, 1),
                number(one.touched.int_products / 1e9, 3),
                number(one.touched.float_products / 1e9, 3),
                number(one.floor_ms, 3),
                number(one.ms / one.floor_ms) if one.floor_ms > 0 else "",
            )
            for one in parts
        ],
    )


def show_prefill(one: Prefill) -> None:
    """Time, integer multiply-adds and their share of the peak."""
    show(
        "Prefill from nothing: integer multiply-adds, and of what all threads do alone",
        ("tokens", "ms (least..most)", "tok/s (least..most)", "int GMAC", "GMAC/s (least..most)",
         "of peak", "roofline ms", "factor (least..most)"),
        [
            (
                str(one.tokens),
                spread(one.ms),
                spread(one.tokens_per_second),
                number(one.int_products / 1e9, 3),
                spread(one.int_giga_per_second),
                spread(one.peak_share),
                number(one.roofline_ms),
                spread(one.factor),
            )
        ],
    )  # fmt: skip


def _bars(text: str) -> dict[int, float]:
    """``1:1.33,4:1.8``."""
    bars = {}
    for one in text.split(","):
        rows, colon, bar = one.partition(":")
        if not colon:
            raise argparse.ArgumentTypeError(f"{one!r}: expected T:F, as 4:1.8")
        bars[positive(rows.strip())] = positive_number(bar)
    return bars
