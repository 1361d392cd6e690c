"""specrt over a peer, and the bars that the ratios have to reach."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.peers.engine import PLAIN, PREFILL
from benchmarks.peers.measure import Contestant
from benchmarks.peers.summary import (
    Rates,
    best_modes,
    geometric_mean,
    pair_ratios,
    run_spread,
    speculative_ratios,
)
from specrt.bench.report import Bound


@dataclass(frozen=True, slots=True)
class Comparison:
    """One engine over a peer.

    Args:
        plain: tokens per second without speculation, by prompt.
        speculative: our speculation over the peer's best of the prompt.
        best: that best one.
        prefill: tokens per second of the prefill, the median of all pairs; None without one.
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
    """What was measured beside what it has to be; nothing for what was not measured.

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
        Bound(name, geometric_mean(ratios), bar)
        for name, ratios, bar in wanted
        if bar is not None and ratios
    ]
    if bars.spread and found.spread is not None:
        name = f"run-to-run spread of plain decoding, bar: {found.peer}'s"
        bounds.append(Bound(name, *found.spread, at_most=True))
    return bounds
