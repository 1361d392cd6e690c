"""How far loading is, on stderr, where it takes long enough to be looked at."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

WAIT = 0.5
"""Seconds before anything is shown."""


@contextmanager
def loading_bar(total: int, verbose: bool) -> Iterator[Callable[[int], None] | None]:
    """Shows bytes and their speed while the block runs, and nothing once it has ended.

    Args:
        total: bytes.
        verbose: False for never; True where stderr is a terminal.

    Yields:
        What hears of bytes that are loaded; None where nothing will be shown.
    """
    if not verbose or not sys.stderr.isatty():
        yield None
        return
    start, done = time.monotonic(), 0
    update: Callable[[int], None] | None = None

    def report(num_bytes: int) -> None:
        nonlocal done, update
        done += num_bytes
        if update is None and time.monotonic() - start > WAIT:
            update = _show(done, total, shown)
        elif update is not None:
            update(done)

    with ExitStack() as shown:
        yield report


def _show(done: int, total: int, shown: ExitStack) -> Callable[[int], None]:
    """Draw the bar until ``shown`` closes; what is returned moves it."""
    from rich.console import Console  # short loads need not wait for these
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TransferSpeedColumn,
    )

    columns = (TextColumn("loading"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    progress = Progress(
        *columns, console=Console(stderr=True), transient=True, redirect_stdout=False
    )
    task = progress.add_task("", total=total, completed=done)
    shown.enter_context(progress)
    return lambda done: progress.update(task, completed=done)
