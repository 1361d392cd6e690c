"""What speculation should gain by what was accepted and by what rows and drafts cost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from specrt.bench.costs import replay_costs, steps_seconds
from specrt.bench.pairs import Pair
from specrt.bench.report import Bound, number, show, spread
from specrt.bench.timing import Spread

LEAST = 0.92
"""Of the predicted ratio to plain decoding."""


@dataclass(frozen=True, slots=True)
class RowCosts:
    """Seconds of a verify of 1, 2 .. rows in the middle of the answer of the pair before."""

    seconds: np.ndarray


@dataclass(frozen=True, slots=True)
class Prediction:
    """One turn of one prompt.

    Args:
        ratio: over plain decoding, as predicted; median of the pairs.
        tokens_per_second: that times plain decoding's.
        share: measured over predicted ratio, pair by pair.
    """

    prompt: str
    turn: int
    ratio: float
    tokens_per_second: float
    share: Spread


def predictions(found: Iterable[Pair | RowCosts]) -> list[Prediction]:
    """Of the pairs with row costs behind them, where anything drafts.

    Each by the costs of its own minute: what many rows cost beside one changes with the machine.
    """
    groups: dict[tuple[str, int], list[tuple[Pair, np.ndarray]]] = {}
    for pair, costs in pairwise(found):
        if not isinstance(pair, Pair) or not isinstance(costs, RowCosts):
            continue
        if pair.spec.completion.stats.speculator is not None:
            group = groups.setdefault((pair.prompt.id, pair.turn), [])
            group.append((pair, replay_costs(costs.seconds).verify))
    return [_prediction(prompt, turn, group) for (prompt, turn), group in groups.items()]


def predicted_ratio(pair: Pair, costs: np.ndarray) -> float:
    """Plain steps for the emitted tokens over what steps and drafts should take, in plain steps.

    Args:
        costs: [65] float64, of a step by its K.
    """
    stats = pair.spec.completion.stats
    plain = pair.plain.seconds / len(pair.plain.completion.token_ids)
    drafts = (stats.phases.draft + stats.phases.commit) / 1e3
    steps = steps_seconds(stats, costs) / float(costs[0])
    return len(pair.spec.completion.token_ids) / (steps + drafts / plain)


def bounds_of(found: Sequence[Prediction]) -> list[Bound]:
    """The worst prompt."""
    if not found:
        return []
    least = min(one.share.median for one in found)
    return [Bound("speculation: of the predicted ratio, least prompt", least, LEAST)]


def show_predictions(found: Sequence[Prediction]) -> None:
    """Measured beside predicted."""
    if found:
        show(
            "By what was accepted, and what rows and drafts cost",
            ("prompt", "turn", "predicted tok/s", "predicted ratio", "measured, of predicted"),
            [
                (
                    one.prompt,
                    str(one.turn),
                    number(one.tokens_per_second, 1),
                    number(one.ratio),
                    spread(one.share),
                )
                for one in found
            ],
        )


def _prediction(prompt: str, turn: int, group: Sequence[tuple[Pair, np.ndarray]]) -> Prediction:
    ratios = [predicted_ratio(pair, costs) for pair, costs in group]
    plain = float(np.median([pair.plain.tokens_per_second for pair, _ in group]))
    ratio = float(np.median(ratios))
    shares = [pair.ratio / one for (pair, _), one in zip(group, ratios, strict=True)]
    return Prediction(prompt, turn, ratio, ratio * plain, Spread.of(shares))
