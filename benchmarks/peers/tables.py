"""What a run prints: every engine and mode, then the ratios and the bars."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from benchmarks.peers.engine import PLAIN, PREFILL
from benchmarks.peers.measure import Contestant
from benchmarks.peers.ratios import Comparison
from benchmarks.peers.summary import Rates, Result, geometric_mean, run_spread
from specrt.bench.report import number, show

COLUMNS = ("engine", "mode", "prompt", "tokens", "tok/s", "ms / step", "tokens / verify")


def show_results(results: Sequence[Result], own: str) -> None:
    """Decoding by prompt, engine and mode."""
    show(
        f"Decoding after the first forward; text beside {own}'s plain one, by ids",
        (*COLUMNS, "accepted", "text", "note"),
        [_row(result, own) for result in results if result.mode != PREFILL],
        num_texts=3,
    )


def show_engines(results: Sequence[Result], rates: Rates) -> None:
    """Means over the prompts, and the spread from run to run."""
    rows = []
    for one in rates:
        of_it = [r for r in results if (r.engine, r.mode) == (one.engine, one.mode)]
        speeds = [r.tokens_per_second.median for r in of_it if r.tokens_per_second is not None]
        steps = [r.ms_per_step for r in of_it if r.ms_per_step is not None]
        spread = run_spread(rates, one)
        row = (
            one.engine,
            one.mode,
            str(len(of_it)),
            number(geometric_mean(speeds), 1),
            number(geometric_mean(steps), 3) if steps else "",
            "" if spread is None else f"{spread:.1%}",
        )
        rows.append(row)
    show(
        "Geometric means over the prompts; spread: interquartile over median from run to run",
        ("engine", "mode", "prompts", "tok/s", "ms / step", "spread"),
        rows,
        num_texts=2,
    )


def show_comparisons(found: Iterable[Comparison], categories: Mapping[str, str], own: str) -> None:
    """Ratios by prompt, by category, and over all."""
    for comparison in found:
        rows = [
            (
                categories[prompt],
                prompt,
                number(comparison.plain.get(prompt)),
                number(comparison.speculative.get(prompt)),
                _mode(comparison.best.get(prompt)),
            )
            for prompt in categories
        ]
        for category in dict.fromkeys(categories.values()):
            rows.append((category, "geometric mean", *_means(comparison, categories, category), ""))
        rows.append(("all", "geometric mean", *_means(comparison, categories, None), ""))
        show(
            f"{own} / {comparison.peer}, medians of pairs of the same round"
            + (f"; prefill {comparison.prefill:.2f}" if comparison.prefill is not None else ""),
            ("category", "prompt", "plain", "speculative", f"best of {comparison.peer}"),
            rows,
            num_texts=2,
        )


def _means(
    comparison: Comparison, categories: Mapping[str, str], category: str | None
) -> tuple[str, str]:
    means = []
    for ratios in (comparison.plain, comparison.speculative):
        values = [r for p, r in ratios.items() if category in (None, categories.get(p))]
        means.append(number(geometric_mean(values)) if values else "")
    return means[0], means[1]


def _mode(best: Contestant | None) -> str:
    return "" if best is None else best.mode


def _row(result: Result, own: str) -> tuple[str, ...]:
    speed, accepted = result.tokens_per_second, result.acceptance_rate
    is_own = (result.engine, result.mode) == (own, PLAIN)
    text = "same" if result.differs_at is None else f"differs at {result.differs_at}"
    if result.differs_at is None and (is_own or not result.tells_ids):
        text = ""
    return (
        result.engine,
        result.mode,
        result.prompt,
        str(result.tokens),
        "" if speed is None else f"{speed.median:.1f} ({speed.low:.1f}..{speed.high:.1f})",
        number(result.ms_per_step, 3),
        number(result.tokens_per_verify),
        "" if accepted is None else f"{accepted:.0%}",
        text,
        "degenerate" if result.degenerate else "",
    )
