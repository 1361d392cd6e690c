"""What stands below an answer, and the colours that show where its tokens came from."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from specrt.stats import Origin, Stats

STYLES: dict[Origin, str] = {
    "accepted": "green",
    "bonus": "cyan",
    "corrected": "yellow",
    "plain": "",
}


CONTROLS = {code: None for code in (*range(32), *range(127, 160)) if chr(code) not in "\t\n"}


def write(text: str) -> None:
    """A model's text on stdout; a terminal does not get what would drive it."""
    print(for_terminal(text) if sys.stdout.isatty() else text, end="", flush=True)


def for_terminal(text: str) -> str:
    """The text without control characters: no escape sequence of a model moves the cursor."""
    return text.translate(CONTROLS)


def tell(line: Any) -> None:
    """A dim line on stderr; a terminal gets it broken between words, a log in one piece."""
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=True)
    text = Text(line, "dim") if isinstance(line, str) else line
    console.print(text, soft_wrap=not console.is_terminal)


def summary(stats: Stats) -> str:
    """One line: who drafted, how well, how fast, or why not."""
    parts = [_speculation(stats), f"{stats.emitted} tokens at {stats.tokens_per_second:.1f}/s"]
    if stats.draft_steps and stats.ratio_to_plain is not None:
        parts[-1] += f", {stats.ratio_to_plain:.2f}x plain"
    if stats.time_to_first_token is not None:
        parts.append(f"first after {stats.time_to_first_token:.0f} ms")
    if stats.cached_tokens:
        parts.append(f"{stats.cached_tokens} of {stats.prompt_tokens} prompt tokens kept")
    if stats.seed is not None:
        parts.append(f"seed {stats.seed}")
    return " · ".join(parts)


def _speculation(stats: Stats) -> str:
    declined = "".join(f"; {reason}" for reason in stats.declined)
    if stats.speculator is None:
        return f"plain{declined}" if declined else "plain (speculation is off)"
    if not stats.draft_steps:
        return f"{stats.speculator}: no draft (nothing found, or not worth it){declined}"
    return (
        f"{stats.speculator}: {stats.num_accepted}/{stats.num_drafted} accepted "
        f"({100 * stats.acceptance_rate:.0f} %), length {stats.acceptance_length:.1f}"
        f"{declined}"
    )


def legend(stats: Stats) -> Any:
    """The colours with what they mean and how often they occurred, as rich text."""
    from rich.text import Text

    meanings: dict[Origin, str] = {
        "accepted": "accepted",
        "bonus": "bonus (after a whole draft)",
        "corrected": "corrected (after a wrong one)",
        "plain": "plain",
    }
    line = Text()
    for origin, meaning in meanings.items():
        line.append(f"{' · ' if line else ''}{stats.origins.count(origin)} ")
        line.append(meaning, STYLES[origin])
    return line


class OriginSpans:
    """Cuts streamed text where the origin of its tokens changes.

    Text comes later than its tokens where a character or a stop string is unfinished.

    Args:
        token_bytes: what a token adds to the text.
    """

    def __init__(self, token_bytes: Callable[[int], bytes]) -> None:
        self._token_bytes = token_bytes
        self._waiting: deque[tuple[int, Origin]] = deque()

    def add(self, token_ids: Iterable[int], origins: Iterable[Origin]) -> None:
        """Tokens in the order in which they were emitted."""
        for token, origin in zip(token_ids, origins, strict=True):
            self._waiting.extend((byte, origin) for byte in self._token_bytes(token))

    def spans(self, text: str) -> Iterator[tuple[str, Origin]]:
        """The next text, each run of one origin for itself."""
        run, last = "", None
        for character in text:
            origin = self._take(character) or last or "plain"
            if last is not None and origin != last:
                yield run, last
                run = ""
            run, last = run + character, origin
        if last is not None:
            yield run, last

    def _take(self, character: str) -> Origin | None:
        """The origin of a character's first byte; bytes that are no UTF-8 show as U+FFFD."""
        raw = character.encode()
        while self._waiting and character != "\ufffd" and self._waiting[0][0] != raw[0]:
            self._waiting.popleft()  # the rest of what one U+FFFD stood for
        if not self._waiting:
            return None
        origin = self._waiting[0][1]
        whole = self._waiting[0][0] == raw[0]
        for _ in range(min(len(raw) if whole else 1, len(self._waiting))):
            self._waiting.popleft()
        return origin
