"""Tables for people, JSON for programs."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from specrt.bench.timing import Spread
from specrt.errors import OptionError

T = TypeVar("T")

CYCLE_TOKENS = 64
FOLDERS = re.compile(r"(?<![\w.])/(?:[^\s/:'\"]+/)*(?=[^\s/])")


@dataclass(frozen=True, slots=True)
class Bound:
    """A figure and what it has to be.

    Args:
        name: of what.
        figure: as measured.
        bar: the most it may be if ``at_most``, else the least.
    """

    name: str
    figure: float
    bar: float
    at_most: bool = False

    @property
    def holds(self) -> bool:
        """True if the figure is on the right side of the bar."""
        return self.figure <= self.bar if self.at_most else self.figure >= self.bar


def show_bounds(bounds: Iterable[Bound]) -> None:
    """Figure, bar and verdict."""
    show(
        "Bounds",
        ("bound", "figure", "bar", "holds"),
        [
            (
                bound.name,
                f"{bound.figure:.3f}",
                f"{'<=' if bound.at_most else '>='} {bound.bar:g}",
                "yes" if bound.holds else "no",
            )
            for bound in bounds
        ],
    )


def bound_rows(bounds: Iterable[Bound]) -> list[dict[str, Any]]:
    """For JSON, the verdicts included."""
    return [asdict(bound) | {"holds": bound.holds} for bound in bounds]


def degenerate(token_ids: Sequence[int]) -> bool:
    """True if the last 64 ids are one cycle: a period of at most 32 ids that repeats."""
    tail = list(token_ids[-CYCLE_TOKENS:])
    if len(tail) < CYCLE_TOKENS:
        return False
    return any(tail[period:] == tail[:-period] for period in range(1, CYCLE_TOKENS // 2 + 1))


def collect(results: Iterable[T]) -> tuple[list[T], bool]:
    """All results, or those before a Ctrl-C; and whether they are all."""
    done: list[T] = []
    try:
        for result in results:
            done.append(result)
    except KeyboardInterrupt:
        return done, False
    return done, True


def number(value: float | None, digits: int = 2) -> str:
    """For a cell; nothing for None."""
    return "" if value is None else f"{value:.{digits}f}"


def spread(value: Spread) -> str:
    """``1.52 (1.49..1.55)``."""
    return f"{value.median:.2f} ({value.low:.2f}..{value.high:.2f})"


def show(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], num_texts: int = 1
) -> None:
    """Print a table; the first ``num_texts`` columns are text, the others numbers."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index < num_texts else "right")
    for row in rows:
        table.add_row(*row)
    # A file or a pipe has no width, and a cut table is of no use there.
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(title, style="bold", highlight=False)
    console.print(table)


def check_writable(path: Path | None, flag: str = "--json") -> None:
    """Find out before the work whether its result could be saved.

    Args:
        path: where to, None for nowhere.
        flag: that gave it.

    Raises:
        OptionError: it could not.
    """
    if path is None:
        return
    place = path if path.exists() else path.absolute().parent
    if path.is_dir() or not path.absolute().parent.is_dir() or not os.access(place, os.W_OK):
        raise OptionError(
            f"{flag} {path}: expected a file that can be written, in a folder that exists"
        )


def save(path: Path | None, content: dict[str, Any]) -> None:
    """Write JSON: dataclasses as objects, folders cut off the paths of files."""
    if path is not None:
        path.write_text(json.dumps(_plain(content), indent=1) + "\n", encoding="utf-8")


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return _plain(asdict(value))
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, str):
        return FOLDERS.sub("", value)
    return value
