"""From rounds of drafts to factors: the whole, its phases, their ops, and first tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from specrt.bench.draft_floors import ON_DEVICE, DraftTouched, phase_ops
from specrt.bench.draft_steps import PLAIN, DraftKey, DraftRound, FirstToken, Trace
from specrt.bench.floor_results import MachineSpeed, machine_speeds, rates_of
from specrt.bench.floor_steps import SpeedKey
from specrt.bench.machine_speed import largest_cache
from specrt.bench.report import Bound
from specrt.bench.timing import Spread
from specrt.bench.touched import Rates, Touched
from specrt.speculative.algorithms.block import BLOCK

BAR, FIRST_TOKEN_BAR = 1.5, 1.25
MOST_APART = 0.05
"""Of a draft that its phases may take more or less together, before it is told."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A draft, timed as a whole.

    Args:
        ms: median, least and most of the rounds.
        num_bytes: that it touches.
        byte_floor_ms: reading them, at the median.
        roofline_ms: of each phase the longer of reading and computing, in sum; at the median.
        factor: its time over the byte floor, round by round.
        least_factor: its least time over its least floor, which a busy machine disturbs less.
        phases_share: what the medians of its phases sum to, of its own.
        bar: the most that the factor may be; None where a cache could hold what it reads.
    """

    cached: int
    waiting: int
    ms: Spread
    num_bytes: int
    byte_floor_ms: float
    roofline_ms: float
    factor: Spread
    least_factor: float
    phases_share: float
    bar: float | None


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of a draft.

    Args:
        touched: bytes and products; None where nothing but what was just computed is read.
        byte_floor_ms, roofline_ms: as of a draft.
        factor: its median over the roofline's; so is the least factor, of the least of both.
    """

    cached: int
    waiting: int
    phase: str
    ms: Spread
    touched: Touched | None
    byte_floor_ms: float | None = None
    roofline_ms: float | None = None
    factor: float | None = None
    least_factor: float | None = None


@dataclass(frozen=True, slots=True)
class OpTime:
    """All calls of an op in one phase; milliseconds at the median."""

    cached: int
    waiting: int
    phase: str
    op: str
    calls: int
    ms: float


@dataclass(frozen=True, slots=True)
class Found:
    """All that rounds of drafts tell."""

    speeds: list[MachineSpeed]
    drafts: list[Draft]
    phases: list[Phase]
    ops: list[OpTime]

    @classmethod
    def of(
        cls,
        rounds: Sequence[DraftRound],
        amounts: Mapping[SpeedKey, int],
        touched: Mapping[DraftKey, DraftTouched],
        bar: float,
    ) -> Found:
        """Of any number of rounds."""
        if not rounds:
            return cls([], [], [], [])
        return cls(
            list(machine_speeds([one.seconds for one in rounds], amounts)),
            drafts_of(rounds, amounts, touched, bar),
            phases_of(rounds, amounts, touched),
            list(ops_of(rounds, list(touched))),
        )


@dataclass(frozen=True, slots=True)
class FirstTokens:
    """A prompt's first token with and without a drafter that follows it.

    Args:
        plain_prefill_ms, prefill_ms: without, and with a drafter.
        following_ms: what the drafter takes of it.
        plain_ms, ms: up to the first token.
        prefill_ratio, ratio: with over without, round by round.
    """

    tokens: int
    plain_prefill_ms: Spread
    prefill_ms: Spread
    following_ms: Spread
    prefill_ratio: Spread
    plain_ms: Spread
    ms: Spread
    ratio: Spread


def drafts_of(
    rounds: Sequence[DraftRound],
    amounts: Mapping[SpeedKey, int],
    touched: Mapping[DraftKey, DraftTouched],
    bar: float,
) -> list[Draft]:
    """Every draft beside its floors; a round is held to the machine's speed in it.

    Args:
        touched: by the keys of drafts that are timed as a whole.
    """
    rates = rates_of([one.seconds for one in rounds], amounts)
    found = []
    for key, own in touched.items():
        seconds = np.array([one.seconds[key] for one in rounds])
        floor = own.num_bytes / rates.num_bytes
        roofline = np.sum([one.seconds(rates) for one in own.phases.values()], axis=0)
        phases = sum(float(np.median(one)) for one in _phase_seconds(key, rounds).values())
        found.append(
            Draft(
                cached=key.cached,
                waiting=key.waiting,
                ms=Spread.of((seconds * 1e3).tolist()),
                num_bytes=own.num_bytes,
                byte_floor_ms=_median_ms(floor),
                roofline_ms=_median_ms(roofline),
                factor=Spread.of((seconds / floor).tolist()),
                least_factor=float(seconds.min() / floor.min()),
                phases_share=phases / float(np.median(seconds)),
                bar=bar if own.num_bytes > largest_cache() else None,
            )
        )
    return found


def phases_of(
    rounds: Sequence[DraftRound],
    amounts: Mapping[SpeedKey, int],
    touched: Mapping[DraftKey, DraftTouched],
) -> list[Phase]:
    """What each draft takes, part by part."""
    rates = rates_of([one.seconds for one in rounds], amounts)
    return [
        _phase(key, name, seconds, own.phases.get(name), rates)
        for key, own in touched.items()
        for name, seconds in _phase_seconds(key, rounds).items()
    ]


def ops_of(rounds: Sequence[DraftRound], keys: Sequence[DraftKey]) -> Iterator[OpTime]:
    """The ops of each phase."""
    for key in keys:
        found = [phase_ops(trace.ops) for trace in _traces(key, rounds)]
        for (phase, op), (calls, _) in found[0].items():
            seconds = np.array([one[phase, op][1] for one in found])
            yield OpTime(key.cached, key.waiting, phase, op, calls, _median_ms(seconds))


def first_tokens_of(tokens: int, rounds: Sequence[Mapping[str, FirstToken]]) -> FirstTokens:
    """A prompt of so many tokens."""
    plain, block = ([one[name] for one in rounds] for name in (PLAIN, BLOCK))
    pairs = list(zip(block, plain, strict=True))
    return FirstTokens(
        tokens=tokens,
        plain_prefill_ms=Spread.of([one.prefill * 1e3 for one in plain]),
        prefill_ms=Spread.of([one.prefill * 1e3 for one in block]),
        following_ms=Spread.of([one.following * 1e3 for one in block]),
        prefill_ratio=Spread.of([one.prefill / other.prefill for one, other in pairs]),
        plain_ms=Spread.of([one.all * 1e3 for one in plain]),
        ms=Spread.of([one.all * 1e3 for one in block]),
        ratio=Spread.of([one.all / other.all for one, other in pairs]),
    )


def bounds_of(drafts: Sequence[Draft], first: FirstTokens | None) -> list[Bound]:
    """The drafts that have a bar, and the first token."""
    bounds = [
        Bound(
            f"{one.waiting} rows and a block behind {one.cached} tokens: byte floors",
            one.factor.median,
            one.bar,
            at_most=True,
        )
        for one in drafts
        if one.bar is not None
    ]
    if first is None:
        return bounds
    name = f"first token of {first.tokens}: with a drafter over without"
    return [*bounds, Bound(name, first.ratio.median, FIRST_TOKEN_BAR, at_most=True)]


def apart(drafts: Sequence[Draft]) -> list[str]:
    """A line for each draft whose phases do not sum to what it takes."""
    return [
        f"behind {one.cached} tokens, {one.waiting} rows: the phases take "
        f"{one.phases_share:.2f} of the draft that is timed as a whole; the machine was busy, or "
        "a phase is missing"
        for one in drafts
        if abs(one.phases_share - 1) > MOST_APART
    ]


def _phase(
    key: DraftKey, name: str, seconds: np.ndarray, touched: Touched | None, rates: Rates
) -> Phase:
    ms = Spread.of((seconds * 1e3).tolist())
    if touched is None:
        return Phase(key.cached, key.waiting, name, ms, None)
    roofline = touched.seconds(rates)
    return Phase(
        key.cached,
        key.waiting,
        name,
        ms,
        touched,
        byte_floor_ms=_median_ms(touched.num_bytes / rates.num_bytes),
        roofline_ms=_median_ms(roofline),
        factor=ms.median / _median_ms(roofline),
        least_factor=float(seconds.min() / roofline.min()),
    )


def _phase_seconds(key: DraftKey, rounds: Sequence[DraftRound]) -> dict[str, np.ndarray]:
    """Round by round: the program's phases, the walk, and what else the host does."""
    found: dict[str, np.ndarray] = {}
    traces = _traces(key, rounds)
    ops = [phase_ops(trace.ops) for trace in traces]
    for name in ON_DEVICE:
        seconds = [[took for (phase, _), (_, took) in one.items() if phase == name] for one in ops]
        if seconds[0]:
            found[name] = np.array([sum(one) for one in seconds])
    device = np.sum(list(found.values()), axis=0)
    found["walk"] = np.array([trace.walk for trace in traces])
    found["host"] = np.array([trace.seconds for trace in traces]) - device - found["walk"]
    return found


def _traces(key: DraftKey, rounds: Sequence[DraftRound]) -> list[Trace]:
    timed = DraftKey(key.cached, key.waiting, timed=True)
    return [one.traces[timed] for one in rounds]


def _median_ms(seconds: np.ndarray) -> float:
    return float(np.median(seconds)) * 1e3
