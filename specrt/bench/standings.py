"""From pairs of answers to how each contestant stands, by category and in all."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from specrt.bench.contestants import Contestant
from specrt.bench.pairs import Pair
from specrt.bench.report import number, show
from specrt.bench.summary import (
    acceptance_at,
    geometric_mean,
    merged,
    ms_per_step,
    summarise,
)

ALL: Final = "all"
"""Stands for all categories."""
PLAIN: Final = "plain"
MARK: Final = "*"
"""Behind a figure that a degenerate answer is part of."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A pair, who drafted in it, and whether the governor chose how far."""

    contestant: Contestant
    pair: Pair
    governed: bool


@dataclass(frozen=True, slots=True)
class Standing:
    """A contestant over the prompts of a category: how fast with the governor, and how good.

    What drafts are worth is told by pairs without the governor, in which every step drafts.

    Args:
        category: ``ALL`` for all.
        turns: of the conversations.
        ratio: to plain decoding: geometric mean over prompts and turns, of each the median of its
            pairs.
        least: of the prompts' and turns' ratios.
        most: likewise.
        drafts_per_step: share of the steps that verified a draft.
        plain_ms: of a step of the plain answers.
        step_ms: of a step, all phases.
        fixed_ratio: as ``ratio``, of the pairs without the governor; so is all that follows.
        acceptance_rate: sum m / sum K.
        acceptance_length: mean of m + 1 over the verified drafts.
        acceptance_at: share of the drafts that reached a position which it was accepted in.
        verify_ms: of the forward that verifies a draft.
        draft_ms: of drafting, by verified draft.
        degenerate: prompts with an answer whose last 64 ids are one cycle.
    """

    category: str
    turns: list[int]
    ratio: float
    least: float
    most: float
    plain_tokens_per_second: float
    tokens_per_second: float
    drafts_per_step: float
    plain_ms: float
    step_ms: float
    fixed_ratio: float
    acceptance_rate: float
    acceptance_length: float
    acceptance_at: list[float]
    verify_ms: float
    draft_ms: float
    degenerate: list[str]

    @property
    def cell(self) -> str:
        """The ratio, marked."""
        return number(self.ratio) + MARK * bool(self.degenerate)


@dataclass(frozen=True, slots=True)
class Result:
    """A contestant over everything.

    Args:
        prompts: ratio of each prompt and turn, the median of its pairs.
        by_turn: by category, ``ALL`` last, and turn.
        standings: by category, ``ALL`` last, of all turns together.
    """

    contestant: Contestant
    prompts: dict[str, float]
    by_turn: list[Standing]
    standings: list[Standing]

    def standing(self, category: str, turn: int | None = None) -> Standing | None:
        """Of a category, and of one turn or of all; None if that was not measured."""
        among = self.standings if turn is None else self.by_turn
        turns = None if turn is None else [turn]
        found = (one for one in among if one.category == category and turns in (None, one.turns))
        return next(found, None)


def results_of(measured: Iterable[Measured]) -> list[Result]:
    """One of each contestant that was measured with and without the governor, in their order."""
    groups: dict[Contestant, list[Measured]] = {}
    for one in measured:
        groups.setdefault(one.contestant, []).append(one)
    return [made for who, group in groups.items() if (made := _result(who, group)).standings]


def _result(contestant: Contestant, group: Sequence[Measured]) -> Result:
    categories = [*dict.fromkeys(one.pair.prompt.category for one in group), ALL]
    turns = sorted({one.pair.turn for one in group})
    by_turn = [_standing(group, category, [turn]) for category in categories for turn in turns]
    governed = [one.pair for one in group if one.governed]
    return Result(
        contestant=contestant,
        prompts={result.label: result.ratio.median for result in summarise(governed)},
        by_turn=[one for one in by_turn if one is not None],
        standings=[one for name in categories if (one := _standing(group, name, turns))],
    )


def _standing(group: Sequence[Measured], category: str, turns: Collection[int]) -> Standing | None:
    chosen = [
        one
        for one in group
        if one.pair.turn in turns and category in (ALL, one.pair.prompt.category)
    ]
    pairs = [one.pair for one in chosen if one.governed]
    fixed = [one.pair for one in chosen if not one.governed]
    if not pairs or not fixed:
        return None
    results = summarise(pairs)
    ratios = [result.ratio.median for result in results]
    plain = merged([pair.plain.completion.stats for pair in pairs])
    stats, drafts = (merged([one.spec.completion.stats for one in each]) for each in (pairs, fixed))
    return Standing(
        category=category,
        turns=sorted(turns),
        ratio=geometric_mean(ratios),
        least=min(ratios),
        most=max(ratios),
        plain_tokens_per_second=stats.emitted / sum(pair.plain.seconds for pair in pairs),
        tokens_per_second=stats.emitted / sum(pair.spec.seconds for pair in pairs),
        drafts_per_step=stats.draft_steps / stats.steps,
        plain_ms=plain.decode_ms / plain.steps,
        step_ms=stats.decode_ms / stats.steps,
        fixed_ratio=geometric_mean([result.ratio.median for result in summarise(fixed)]),
        acceptance_rate=drafts.acceptance_rate,
        acceptance_length=drafts.acceptance_length,
        acceptance_at=acceptance_at(drafts),
        verify_ms=ms_per_step(drafts)["verify"],
        draft_ms=drafts.phases.draft / max(1, drafts.draft_steps),
        degenerate=[result.label for result in results if result.degenerate],
    )


def categories_of(results: Sequence[Result]) -> list[str]:
    """All that anybody has a standing in, ``ALL`` last."""
    found = dict.fromkeys(one.category for result in results for one in result.standings)
    return [*(name for name in found if name != ALL), ALL]


def show_standings(results: Sequence[Result]) -> None:
    """The ratios by turn, then what they are made of, for each category and for all."""
    categories = categories_of(results)
    turns = {turn for result in results for one in result.by_turn for turn in one.turns}
    for turn in sorted(turns):
        show(
            f"Times as fast as plain decoding, turn {turn}; every answer equals the plain one "
            f"({MARK} an answer's last 64 ids are one cycle)",
            ("drafts", "K", *categories),
            [
                (
                    result.contestant.name,
                    str(result.contestant.num_draft),
                    *(_cell(result.standing(name, turn)) for name in categories),
                )
                for result in results
            ],
        )
    for category in categories:
        show(
            f"{category}, these turns: with the governor | without it, in every step; ms of a "
            "verify and of a draft, share accepted at each position reached",
            ("drafts", "K", "ratio", "tok/s", "drafted", "step ms", "| ratio", "tokens/verify",
             "accepted", "verify", "draft", "d1, d2 .. [%]"),
            list(_rows(results, category)),
        )  # fmt: skip


def _cell(standing: Standing | None) -> str:
    return "" if standing is None else standing.cell


def _rows(results: Sequence[Result], category: str) -> Iterable[tuple[str, ...]]:
    found = [(result.contestant, result.standing(category)) for result in results]
    there = [(contestant, standing) for contestant, standing in found if standing is not None]
    speed = median(standing.plain_tokens_per_second for _, standing in there)
    step = median(standing.plain_ms for _, standing in there)
    yield (PLAIN, "", number(1.0), number(speed, 1), "", number(step, 3), *[""] * 6)
    for contestant, standing in there:
        yield (
            contestant.name,
            str(contestant.num_draft),
            standing.cell,
            number(standing.tokens_per_second, 1),
            f"{standing.drafts_per_step:.0%}",
            number(standing.step_ms, 3),
            f"| {standing.fixed_ratio:.2f}",
            number(standing.acceptance_length),
            f"{standing.acceptance_rate:.0%}",
            number(standing.verify_ms, 3),
            number(standing.draft_ms, 3),
            " ".join(f"{100 * share:.0f}" for share in standing.acceptance_at),
        )


def markdown(results: Sequence[Result], title: str, machine: Mapping[str, object]) -> str:
    """Who wins in which category: a table whose best figure of each column is bold.

    Plain decoding is 1, and wins where nobody is faster.
    """
    categories = categories_of(results)
    rows = [(PLAIN, "", dict.fromkeys(categories, 1.0), dict.fromkeys(categories, number(1.0)))]
    for result in results:
        found = [one for name in categories if (one := result.standing(name))]
        contestant = result.contestant
        ratios = {one.category: one.ratio for one in found}
        cells = {one.category: one.cell for one in found}
        rows.append((contestant.name, str(contestant.num_draft), ratios, cells))
    best = {name: max(ratios.get(name, 0.0) for _, _, ratios, _ in rows) for name in categories}
    lines = [
        f"{title}, on {machine['cpu']}, {machine['threads']} threads; times as fast as plain "
        f"decoding, geometric means ({MARK} an answer's last 64 ids are one cycle):",
        "",
        f"| drafts | K | {' | '.join(categories)} |",
        f"| --- | --- |{' --- |' * len(categories)}",
    ]
    for drafts, num_draft, ratios, cells in rows:
        texts = [
            f"**{cells[name]}**" if ratios.get(name) == best[name] else cells.get(name, "")
            for name in categories
        ]
        lines.append(f"| {drafts} | {num_draft} | {' | '.join(texts)} |")
    return "\n".join(lines) + "\n"
