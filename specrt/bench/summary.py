"""From pairs of answers to what is shown and saved of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

import numpy as np

from specrt.bench.pairs import Pair, Run
from specrt.bench.report import degenerate, number, show, spread
from specrt.bench.timing import Spread
from specrt.stats import Phases, Stats

PER_STEP = ("draft", "verify", "accept", "rollback", "commit", "plain")

COLUMNS = ("prompt", "tokens", "plain", "spec", "ratio (least..most)", "accepted", "length")


@dataclass(frozen=True, slots=True)
class Side:
    """One way of answering a prompt.

    Args:
        tokens_per_second: after prefill, one sample per pair.
        time_to_first_token_ms: median, prefill included.
        prefill_ms: median, the drafter's catch-up included.
        ms_per_step: by phase; verify of the steps with a draft, plain of those without.
    """

    tokens_per_second: Spread
    time_to_first_token_ms: float
    prefill_ms: float
    ms_per_step: dict[str, float]


@dataclass(frozen=True, slots=True)
class Result:
    """One turn of one prompt over all its pairs.

    Args:
        ratio: speculative over plain tokens per second, pair by pair.
        acceptance_rate: sum m / sum K.
        acceptance_length: mean of m + 1 over the steps with a draft.
        acceptance_at: share of the drafts that reached a position which it was accepted in.
        num_draft_counts: steps by K.
        degenerate: the last 64 ids are one cycle.
    """

    prompt: str
    category: str
    turn: int
    pairs: int
    prompt_tokens: int
    cached_tokens: int
    tokens: int
    finish_reason: str
    ratio: Spread
    plain: Side
    spec: Side
    speculator: str | None
    declined: list[str]
    acceptance_rate: float
    acceptance_length: float
    acceptance_at: list[float]
    num_draft_counts: dict[int, int]
    degenerate: bool

    @property
    def label(self) -> str:
        """The prompt, and the turn if it is not the first."""
        return self.prompt if self.turn == 1 else f"{self.prompt}, turn {self.turn}"


@dataclass(frozen=True, slots=True)
class Totals:
    """All pairs together.

    Args:
        tokens: emitted each way.
        ratio: of the whole time.
        mean_ratio: geometric, over the prompts' medians.
    """

    tokens: int
    plain_tokens_per_second: float
    spec_tokens_per_second: float
    ratio: float
    mean_ratio: float
    acceptance_rate: float
    acceptance_length: float


def summarise(measured: Iterable[Pair]) -> list[Result]:
    """One result per prompt and turn, in the order of their first pairs."""
    groups: dict[tuple[str, int], list[Pair]] = {}
    for pair in measured:
        groups.setdefault((pair.prompt.id, pair.turn), []).append(pair)
    return [_result(group) for group in groups.values()]


def totals(measured: Sequence[Pair]) -> Totals:
    """Of at least one pair."""
    tokens = sum(len(pair.plain.completion.token_ids) for pair in measured)
    plain = sum(pair.plain.seconds for pair in measured)
    spec = sum(pair.spec.seconds for pair in measured)
    ratios = [result.ratio.median for result in summarise(measured)]
    stats = merged([pair.spec.completion.stats for pair in measured])
    return Totals(
        tokens=tokens,
        plain_tokens_per_second=tokens / plain,
        spec_tokens_per_second=tokens / spec,
        ratio=plain / spec,
        mean_ratio=geometric_mean(ratios),
        acceptance_rate=stats.acceptance_rate,
        acceptance_length=stats.acceptance_length,
    )


def geometric_mean(values: Sequence[float]) -> float:
    """exp of the mean logarithm, of at least one value."""
    return float(np.exp(np.mean(np.log(values))))


def merged(all_stats: Sequence[Stats]) -> Stats:
    """Counts and phases of several runs, added."""
    total = Stats()
    drafted: Counter[int] = Counter()
    accepted: Counter[int] = Counter()
    for stats in all_stats:
        for name in ("steps", "draft_steps", "num_drafted", "num_accepted"):
            setattr(total, name, getattr(total, name) + getattr(stats, name))
        total.origins += stats.origins
        for phase in fields(Phases):
            total.phases.add(phase.name, getattr(stats.phases, phase.name))
        drafted.update(stats.num_draft_counts)
        accepted.update(stats.num_accepted_counts)
    total.num_draft_counts = dict(sorted(drafted.items()))
    total.num_accepted_counts = dict(sorted(accepted.items()))
    return total


def ms_per_step(stats: Stats) -> dict[str, float]:
    """Milliseconds by phase; phases that did not occur are 0."""
    steps = dict.fromkeys(PER_STEP, stats.steps)
    steps |= {"verify": stats.draft_steps, "plain": stats.steps - stats.draft_steps}
    return {name: getattr(stats.phases, name) / max(1, steps[name]) for name in PER_STEP}


def acceptance_at(stats: Stats) -> list[float]:
    """The share of the drafts that reached a position which it was accepted in."""
    return [a / d for a, d in zip(stats.accepted_at, stats.drafted_at, strict=True)]


def _result(group: list[Pair]) -> Result:
    first = group[0]
    completion = first.spec.completion
    stats = merged([pair.spec.completion.stats for pair in group])
    return Result(
        prompt=first.prompt.id,
        category=first.prompt.category,
        turn=first.turn,
        pairs=len(group),
        prompt_tokens=completion.stats.prompt_tokens,
        cached_tokens=completion.stats.cached_tokens,
        tokens=len(completion.token_ids),
        finish_reason=completion.finish_reason,
        ratio=Spread.of([pair.ratio for pair in group]),
        plain=_side([pair.plain for pair in group]),
        spec=_side([pair.spec for pair in group]),
        speculator=completion.stats.speculator,
        declined=completion.stats.declined,
        acceptance_rate=stats.acceptance_rate,
        acceptance_length=stats.acceptance_length,
        acceptance_at=acceptance_at(stats),
        num_draft_counts=stats.num_draft_counts,
        degenerate=degenerate(completion.token_ids),
    )


def _side(runs: list[Run]) -> Side:
    all_stats = [run.completion.stats for run in runs]
    firsts = [stats.time_to_first_token or 0.0 for stats in all_stats]
    prefills = [stats.phases.prefill + stats.phases.catch_up for stats in all_stats]
    return Side(
        tokens_per_second=Spread.of([run.tokens_per_second for run in runs]),
        time_to_first_token_ms=float(np.median(firsts)),
        prefill_ms=float(np.median(prefills)),
        ms_per_step=ms_per_step(merged(all_stats)),
    )


def show_results(results: Sequence[Result], whole: Totals) -> None:
    """Speed and acceptance, then milliseconds by phase."""
    last = (
        "all",
        str(whole.tokens),
        number(whole.plain_tokens_per_second, 1),
        number(whole.spec_tokens_per_second, 1),
        number(whole.ratio),
        f"{whole.acceptance_rate:.0%}",
        number(whole.acceptance_length),
    )
    show(
        "Tokens per second; every speculative answer equals the plain one",
        (*COLUMNS, "first token ms", "note"),
        [*(_row(result) for result in results), last],
    )
    show(
        "Milliseconds per step: a plain run, and the phases of a speculative one",
        ("prompt", "plain run", *PER_STEP),
        [
            (
                result.label,
                number(result.plain.ms_per_step["plain"], 3),
                *(number(result.spec.ms_per_step[name], 3) for name in PER_STEP),
            )
            for result in results
        ],
    )


def _row(result: Result) -> tuple[str, ...]:
    plain, spec = result.plain, result.spec
    return (
        result.label,
        str(result.tokens),
        number(plain.tokens_per_second.median, 1),
        number(spec.tokens_per_second.median, 1),
        spread(result.ratio),
        f"{result.acceptance_rate:.0%}",
        number(result.acceptance_length),
        f"{plain.time_to_first_token_ms:.0f} / {spec.time_to_first_token_ms:.0f}",
        "degenerate" if result.degenerate else "",
    )
