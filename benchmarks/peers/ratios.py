"""specrt over a peer, and the bars that the ratios have to reach."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.peers.engine import PLAIN, PREFILL, Engine
from benchmarks.peers.measure import Contestant
from benchmarks.peers.summary import (
    Rates,
    best_modes,
    geometric_mean,
    pair_ratios,
    run_spread,
    speculative_ratios,
)
from specrt.bench.report import Bound, bound_rows
from specrt.errors import OptionError


@dataclass(frozen=True, slots=True)
class Comparison:
    """One engine over a peer.

    Args:
        plain: tokens per second without speculation, by prompt.
        speculative: our speculation over the peer's best of the prompt.
        best: that best one.
        prefill: tokens per second of the prefill, geometric mean over its prompts; None without.
        spread: run-to-run spread of plain decoding, ours and the peer's; None with one round.
    """

    peer: str
    plain: dict[str, float]
    speculative: dict[str, float]
    best: dict[str, Contestant]
    prefill: float | None
    spread: tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class Bars:
    """The least ratios; None for those that nobody asked for.

    Args:
        decode: geometric mean over the prompts, plain.
        prefill: of a prompt's prefill.
        spec: geometric mean over the category's prompts, speculation against the peer's best.
        spec_least: each of these prompts.
        category: of them.
        spread: True if our run-to-run spread may not be above the peer's.
    """

    decode: float | None
    prefill: float | None
    spec: float | None
    spec_least: float | None
    category: str
    spread: bool

    @property
    def of_speculation(self) -> bool:
        """True if one of them is about speculation."""
        return self.spec is not None or self.spec_least is not None

    def check_plan(self, categories: Collection[str], rounds: int) -> None:
        """Before anything is measured: will there be something behind each bar?

        Args:
            categories: of the prompts that will be asked.

        Raises:
            OptionError: no.
        """
        if self.of_speculation and self.category not in categories:
            raise OptionError(
                f"--bar-category {self.category}: none of the prompts asked is of it: expected "
                f"one of {', '.join(sorted(set(categories)))}"
            )
        if self.spread and rounds < 2:
            raise OptionError("--bar-spread: a single round has no spread: pass --rounds 2 or more")

    def check_peer(self, peer: Engine) -> None:
        """Likewise, when it is known what the peer can do.

        Raises:
            OptionError: it does not speculate, and a bar is about that.
        """
        if self.of_speculation and not peer.speculations:
            raise OptionError(
                f"--bar-spec and --bar-spec-least: {peer.name} does not speculate: name another "
                "engine first in --engines, or leave these bars out"
            )


def compare(rates: Rates, own: str, peer: str) -> Comparison:
    """Our engine over another, from the same run."""
    prefill = pair_ratios(rates, Contestant(own, PREFILL), Contestant(peer, PREFILL))
    spreads = [run_spread(rates, Contestant(name, PLAIN)) for name in (own, peer)]
    return Comparison(
        peer=peer,
        plain=pair_ratios(rates, Contestant(own, PLAIN), Contestant(peer, PLAIN)),
        speculative=speculative_ratios(rates, own, peer),
        best=best_modes(rates, peer),
        prefill=geometric_mean(prefill.values()) if prefill else None,
        spread=None if None in spreads else (spreads[0] or 0.0, spreads[1] or 0.0),
    )


def bounds_of(found: Comparison, categories: Mapping[str, str], bars: Bars) -> list[Bound]:
    """What was measured beside what it has to be; NaN, which holds no bar, for what was not.

    Args:
        categories: of the prompts.
    """
    over = f"over {found.peer}"
    chosen = [r for prompt, r in found.speculative.items() if categories[prompt] == bars.category]
    wanted: Sequence[tuple[str, list[float], float | None]] = (
        (f"plain decoding {over}, mean", list(found.plain.values()), bars.decode),
        (f"prefill {over}", [] if found.prefill is None else [found.prefill], bars.prefill),
        (f"speculation {over}, mean of {bars.category}", chosen, bars.spec),
        (
            f"speculation {over}, least of {bars.category}",
            chosen and [min(chosen)],
            bars.spec_least,
        ),
    )
    bounds = [
        Bound(name, geometric_mean(ratios) if ratios else math.nan, bar)
        for name, ratios, bar in wanted
        if bar is not None
    ]
    if bars.spread:
        name = f"run-to-run spread of plain decoding, bar: {found.peer}'s"
        bounds.append(Bound(name, *(found.spread or (math.nan, math.nan)), at_most=True))
    return bounds


def verdicts(bounds: Iterable[Bound]) -> list[dict[str, Any]]:
    """For JSON, which has no NaN: None for what was not measured."""
    return [
        {key: None if value != value else value for key, value in row.items()}
        for row in bound_rows(bounds)
    ]
