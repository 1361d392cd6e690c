"""Steps of T rows against what bounds them: reading their bytes, and computing their products."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from specrt.bench.arguments import (
    add_contexts,
    add_json,
    context_for,
    positive,
    positive_number,
    positives,
)
from specrt.bench.floor_steps import MEMORY, MODEL, FloorSteps, Mode, Round, SpeedKey, StepKey
from specrt.bench.report import (
    Bound,
    bound_rows,
    check_writable,
    collect,
    number,
    save,
    show,
    show_bounds,
    spread,
)
from specrt.bench.timing import Spread, machine, model_file
from specrt.bench.touched import PARTS, Rates, Touched, touched_by
from specrt.cli import flags
from specrt.errors import OptionError
from specrt.gguf.reader import GGUFFile, open_gguf
from specrt.host import HostOps
from specrt.llm import find_model
from specrt.models import check_architecture
from specrt.ops import KVType
from specrt.options import MAX_DRAFT
from specrt.settings import KV_TYPE, THREADS

BARS = {1: 1.33, 4: 1.8, 8: 2.8}
"""Floors that a greedy verify of T rows may take."""
SHORT = 512
"""Up to so many tokens before its rows a step is held to its bytes alone."""

Floor = Literal["bytes", "roofline"]


@dataclass(frozen=True, slots=True)
class Step:
    """A verify of T rows.

    Args:
        ms: median, least and most of the rounds.
        byte_floor_ms: reading what it touches, at the median.
        roofline_ms: of each part the longer of reading and computing, in sum; at the median.
        factor: its time over the floor that it is held to, round by round.
        least_factor: its least time over its least floor, which a busy machine disturbs less.
        floor: which one that is.
        bar: the most that the factor may be, None where nothing says.
    """

    rows: int
    cached: int
    mode: Mode
    ms: Spread
    byte_floor_ms: float
    roofline_ms: float
    factor: Spread
    least_factor: float
    floor: Floor
    bar: float | None


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a greedy verify of T rows.

    Args:
        part: trunk, head or attention.
        ms: what the step takes more than without it, at the least of the rounds; of the trunk what
            then is left.
        touched: bytes and products.
        floor_ms: the longer of reading and computing, at the least of the rounds.
    """

    rows: int
    cached: int
    part: str
    ms: float
    touched: Touched
    floor_ms: float


@dataclass(frozen=True, slots=True)
class MachineSpeed:
    """What so many threads do of one thing in a second: bytes, or multiply-adds."""

    what: str
    threads: int
    giga_per_second: Spread


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
    context = context_for(gguf, args.contexts, max(args.rows))
    kv_type: KVType = args.kv_type or "f16"
    ops = HostOps(args.threads)
    steps = FloorSteps(gguf, ops, context, kv_type, args.contexts, args.rows)
    steps.check()
    rounds, complete = collect(steps.rounds(args.rounds))
    amounts = {key: speed.amount for key, speed in steps.speeds.items()}
    speeds = list(machine_speeds(rounds, amounts)) if rounds else []
    found, parts = judged(gguf, kv_type, rounds, amounts, args.bars) if rounds else ([], [])
    show_speeds(speeds)
    show_steps(found)
    show_parts(parts)
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
        "bounds": bound_rows(bounds),
    }
    save(args.json, content)
    return 0 if complete else 130


def machine_speeds(
    rounds: Sequence[Round], amounts: Mapping[SpeedKey, int]
) -> Iterator[MachineSpeed]:
    """What each thread and all of them do."""
    for key, amount in amounts.items():
        giga = [amount / one[key] / 1e9 for one in rounds]
        yield MachineSpeed(key.what, key.threads, Spread.of(giga))


def judged(
    gguf: GGUFFile,
    kv_type: KVType,
    rounds: Sequence[Round],
    amounts: Mapping[SpeedKey, int],
    bars: Mapping[int, float],
) -> tuple[list[Step], list[Part]]:
    """Every step and part beside its floors; a round is held to the machine's speed in it."""
    rates = rates_of(rounds, amounts)
    steps, parts = [], []
    for key in rounds[0]:
        if not isinstance(key, StepKey):
            continue
        touched = touched_by(gguf, kv_type, key.cached, key.rows)
        if key.mode == "greedy":
            parts += list(_parts(key, rounds, touched, rates))
        if key.mode in ("greedy", "logits"):
            bar = bars.get(key.rows) if key.mode == "greedy" else None
            steps.append(_step(key, rounds, touched, rates, bar))
    return steps, parts


def rates_of(rounds: Sequence[Round], amounts: Mapping[SpeedKey, int]) -> Rates:
    """Of all threads, round by round; of the two ways to read the faster one."""
    threads = max(key.threads for key in amounts)

    def rate(what: str) -> np.ndarray:
        key = SpeedKey(what, threads)
        return amounts[key] / np.array([one[key] for one in rounds])

    return Rates(np.maximum(rate(MEMORY), rate(MODEL)), rate("integers"), rate("floats"))


def _step(
    key: StepKey,
    rounds: Sequence[Round],
    touched: Mapping[str, Touched],
    rates: Rates,
    bar: float | None,
) -> Step:
    seconds = np.array([one[key] for one in rounds])
    byte_floor = sum(part.num_bytes for part in touched.values()) / rates.num_bytes
    roofline = np.sum([part.seconds(rates) for part in touched.values()], axis=0)
    floor: Floor = "bytes" if key.cached <= SHORT else "roofline"
    held_to = byte_floor if floor == "bytes" else roofline
    return Step(
        rows=key.rows,
        cached=key.cached,
        mode=key.mode,
        ms=Spread.of((seconds * 1e3).tolist()),
        byte_floor_ms=float(np.median(byte_floor)) * 1e3,
        roofline_ms=float(np.median(roofline)) * 1e3,
        factor=Spread.of((seconds / held_to).tolist()),
        least_factor=float(seconds.min() / held_to.min()),
        floor=floor,
        bar=bar,
    )


def _parts(
    key: StepKey, rounds: Sequence[Round], touched: Mapping[str, Touched], rates: Rates
) -> Iterator[Part]:
    """Differences of the least times, since what disturbs a round is larger than a small part."""

    def least(mode: Mode) -> float:
        same = StepKey(key.rows, key.cached, mode)
        return min(one[same] for one in rounds)

    whole = least("greedy")
    seconds = {"head": whole - least("without head")}
    seconds["attention"] = whole - least("without attention")
    seconds["trunk"] = whole - sum(seconds.values())
    for part in PARTS:
        floor = float(touched[part].seconds(rates).min())
        yield Part(key.rows, key.cached, part, seconds[part] * 1e3, touched[part], floor * 1e3)


def bounds_of(steps: Sequence[Step]) -> list[Bound]:
    """The steps that have a bar."""
    return [
        Bound(
            f"T = {step.rows} behind {step.cached} tokens: {step.floor} floors",
            step.factor.median,
            step.bar,
            at_most=True,
        )
        for step in steps
        if step.bar is not None
    ]


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
        ("part", "T", "context", "ms", "MB", "int GMAC", "float GMAC", "floor ms", "factor"),
        [
            (
                one.part,
                str(one.rows),
                str(one.cached),
                number(one.ms),
                number(one.touched.num_bytes / 1e6, 1),
                number(one.touched.int_products / 1e9, 3),
                number(one.touched.float_products / 1e9, 3),
                number(one.floor_ms, 3),
                number(one.ms / one.floor_ms) if one.floor_ms > 0 else "",
            )
            for one in parts
        ],
    )


def _bars(text: str) -> dict[int, float]:
    """``1:1.33,4:1.8``."""
    bars = {}
    for one in text.split(","):
        rows, colon, bar = one.partition(":")
        if not colon:
            raise argparse.ArgumentTypeError(f"{one!r}: expected T:F, as 4:1.8")
        bars[positive(rows.strip())] = positive_number(bar)
    return bars
