"""From rounds to factors: every step and part beside its floors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from specrt.bench.floor_steps import MEMORY, MODEL, Mode, Round, SpeedKey, StepKey
from specrt.bench.report import Bound
from specrt.bench.timing import Spread
from specrt.bench.touched import PARTS, Rates, Touched, touched_by
from specrt.gguf.reader import GGUFFile
from specrt.ops import KVType

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
class Prefill:
    """So many tokens from an empty sequence on; no head, since none of its logits are read.

    Args:
        ms: median, least and most of the rounds.
        int_products: multiply-adds of its quantised matrices.
        int_giga_per_second: 10^9 of them, over all of its time.
        peak_share: of what all threads do alone, round by round.
        roofline_ms: as of a step, at the median; weights are read once.
        factor: its time over that, round by round.
    """

    tokens: int
    ms: Spread
    tokens_per_second: Spread
    int_products: int
    int_giga_per_second: Spread
    peak_share: Spread
    roofline_ms: float
    factor: Spread


@dataclass(frozen=True, slots=True)
class MachineSpeed:
    """What so many threads do of one thing in a second: bytes, or multiply-adds."""

    what: str
    threads: int
    giga_per_second: Spread


def machine_speeds(
    rounds: Sequence[Mapping[Any, float]], amounts: Mapping[SpeedKey, int]
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


def prefilled(
    gguf: GGUFFile, kv_type: KVType, rounds: Sequence[Round], amounts: Mapping[SpeedKey, int]
) -> Prefill:
    """The prefill beside the integer peak and the roofline of each round."""
    (key,) = (key for key in rounds[0] if isinstance(key, StepKey) and key.mode == "prefill")
    touched = touched_by(gguf, kv_type, key.cached, key.rows)
    rates = rates_of(rounds, amounts)
    seconds = np.array([one[key] for one in rounds])
    roofline = touched["trunk"].seconds(rates) + touched["attention"].seconds(rates)
    speed = touched["trunk"].int_products / seconds
    return Prefill(
        tokens=key.rows,
        ms=Spread.of((seconds * 1e3).tolist()),
        tokens_per_second=Spread.of((key.rows / seconds).tolist()),
        int_products=touched["trunk"].int_products,
        int_giga_per_second=Spread.of((speed / 1e9).tolist()),
        peak_share=Spread.of((speed / rates.int_products).tolist()),
        roofline_ms=float(np.median(roofline)) * 1e3,
        factor=Spread.of((seconds / roofline).tolist()),
    )


def rates_of(rounds: Sequence[Mapping[Any, float]], amounts: Mapping[SpeedKey, int]) -> Rates:
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
