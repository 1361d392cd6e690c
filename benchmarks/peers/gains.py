"""From timed steps to what speculation gains an engine by acceptance."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.peers.engine import PLAIN
from benchmarks.peers.measure import Contestant, Sample
from specrt.bench.curve import break_even
from specrt.bench.report import number, show, spread
from specrt.bench.timing import Spread


@dataclass(frozen=True, slots=True)
class Point:
    """A draft of K tokens in every step, each right with one probability if those before are."""

    num_draft: int
    acceptance: float

    @property
    def tokens(self) -> float:
        """What a step emits on average: 1 + a + a^2 .. + a^K."""
        return float((self.acceptance ** np.arange(self.num_draft + 1)).sum())


@dataclass(frozen=True, slots=True)
class Gain:
    """An engine at a point; of several rounds, medians.

    Args:
        ms: of a step: draft, verify, rollback, and what the drafter takes in.
        plain_steps: that over a plain step of the same round.
        break_even: the acceptance from which such a draft pays; None where none does.
        tokens: of a step, by the acceptance.
        drawn: likewise, as it fell out.
        ratio: of speculation over plain decoding, ``tokens / plain_steps``.
        tokens_per_second: ``tokens / ms``.
    """

    engine: str
    point: Point
    ms: Spread
    plain_steps: float
    break_even: float | None
    tokens: float
    drawn: float
    ratio: float
    tokens_per_second: float


def gains(samples: Iterable[Sample], points: Mapping[Contestant, Point]) -> list[Gain]:
    """One for each contestant that drafts, in the order of ``points``."""
    by_one: dict[Contestant, list[Sample]] = {}
    for sample in samples:
        by_one.setdefault(sample.contestant, []).append(sample)
    return [
        _gain(one.engine, point, by_one[one], step_ms(by_one[Contestant(one.engine, PLAIN)]))
        for one, point in points.items()
    ]


def step_ms(samples: Iterable[Sample]) -> dict[str, float]:
    """Milliseconds of a forward after the first, by prompt."""
    return {sample.prompt: sample.answer.decode_ms / sample.answer.steps for sample in samples}


def show_costs(plain: Mapping[str, Spread], found: Sequence[Gain]) -> None:
    """A line for each T, and columns for each engine."""
    rows = [("1", *(cell for ms in plain.values() for cell in (spread(ms), "1.00", "")))]
    for point in dict.fromkeys(gain.point for gain in found):
        cells = [str(point.num_draft + 1)]
        for gain in (gain for gain in found if gain.point == point):
            pays = "never" if gain.break_even is None else number(gain.break_even, 3)
            cells += [spread(gain.ms), number(gain.plain_steps), pays]
        rows.append(tuple(cells))
    columns = [f"{name} {what}" for name in plain for what in ("ms", "plain steps", "pays from")]
    show(
        "A step of T rows: the draft of T - 1 tokens, the verify, the rollback; and the acceptance "
        "of a token from which it pays",
        ("T", *columns),
        rows,
        num_texts=0,
    )


def show_gains(found: Sequence[Gain]) -> None:
    """A line for each acceptance and engine."""
    show(
        "Speculation over the engine's own plain decoding by acceptance",
        ("acceptance", "K", "engine", "ms / step", "tokens / step", "drawn", "ratio", "tok/s"),
        [
            (
                f"{gain.point.acceptance:g}",
                str(gain.point.num_draft),
                gain.engine,
                spread(gain.ms),
                number(gain.tokens),
                number(gain.drawn),
                number(gain.ratio),
                number(gain.tokens_per_second, 1),
            )
            for gain in found
        ],
        num_texts=3,
    )


def _gain(engine: str, point: Point, samples: Sequence[Sample], plain: dict[str, float]) -> Gain:
    steps = step_ms(samples)
    ms = Spread.of(list(steps.values()))
    plain_steps = float(np.median([one / plain[prompt] for prompt, one in steps.items()]))
    answers = [sample.answer for sample in samples]
    later = sum(answer.num_tokens - answer.first_tokens for answer in answers)
    return Gain(
        engine=engine,
        point=point,
        ms=ms,
        plain_steps=plain_steps,
        break_even=break_even(plain_steps, point.num_draft + 1),
        tokens=point.tokens,
        drawn=later / sum(answer.steps for answer in answers),
        ratio=point.tokens / plain_steps,
        tokens_per_second=1e3 * point.tokens / ms.median,
    )
