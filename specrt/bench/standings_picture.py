"""Ratio by category and acceptance by position, as one picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from specrt.bench.standings import ALL, Result, categories_of

BAR_SPACE = 0.84
"""Of the distance of two categories, what their bars take."""


def draw(path: Path, results: Sequence[Result], title: str) -> None:
    """A group of bars for each category, and a line for each contestant, as PNG.

    What drafts in the same way has one colour; the shorter K is paler and dashed.
    """
    from matplotlib import colormaps  # of the extra `bench`
    from matplotlib.figure import Figure

    figure = Figure(figsize=(15, 5.5), layout="constrained")
    figure.suptitle(title)
    bars, lines = figure.subplots(1, 2, width_ratios=(3, 2))
    categories = categories_of(results)
    names = list(dict.fromkeys(result.contestant.name for result in results))
    palette = colormaps["tab10"].colors  # type: ignore[attr-defined]
    colors = {name: palette[index % len(palette)] for index, name in enumerate(names)}
    longest = {name: _longest(results, name) for name in names}
    width = BAR_SPACE / len(results)
    for index, result in enumerate(results):
        contestant, color = result.contestant, colors[result.contestant.name]
        whole = contestant.num_draft == longest[contestant.name]
        ratios = [one.ratio if (one := result.standing(name)) else np.nan for name in categories]
        places = np.arange(len(categories)) + (index + 0.5) * width - BAR_SPACE / 2
        shade = 1.0 if whole else 0.45
        bars.bar(places, ratios, width, color=color, alpha=shade, label=contestant.label)
        shares = standing.acceptance_at if (standing := result.standing(ALL)) else []
        style = "o-" if whole else "x--"
        lines.plot(range(1, len(shares) + 1), shares, style, color=color, alpha=max(shade, 0.7))
    bars.axhline(1, color="black", linewidth=0.8)
    bars.set_xticks(range(len(categories)), categories)
    bars.set_xlabel("category of prompts, and the geometric mean of all")
    bars.set_ylabel("tokens per second over plain decoding's [1]")
    lines.set_xlabel("position in the draft [1]")
    lines.set_ylabel("accepted, of the drafts that reach it, without the governor [1]")
    lines.set_ylim(0, 1.02)
    lines.xaxis.get_major_locator().set_params(integer=True)
    for axes in (bars, lines):
        axes.grid(axis="y", alpha=0.3)
        axes.set_axisbelow(True)
    figure.legend(loc="outside right upper")
    figure.savefig(path, format="png", dpi=150)


def _longest(results: Sequence[Result], name: str) -> int:
    return max(one.contestant.num_draft for one in results if one.contestant.name == name)
