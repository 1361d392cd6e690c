"""Token bytes to pieces of text, and where a stop string ends them: pure functions of the bytes.

The state of a stream is the bytes so far and how many of them were emitted, so that a rollback
is a shorter buffer.
"""

from __future__ import annotations

from codecs import utf_8_decode

__all__ = ["find_stop", "held_back", "take_text"]


def take_text(
    data: bytes, start: int, end: int | None = None, *, final: bool = False
) -> tuple[str, int]:
    """The text that can be shown: what is whole UTF-8 from ``start`` on.

    Bytes that no later byte can complete become U+FFFD; a character's first bytes at the end wait
    for the rest. So the pieces joined are ``data[:end].decode(errors="replace")``, however the
    bytes arrived.

    Args:
        data: all bytes so far.
        start: how many of them were taken before.
        end: take none from here on; None: take all.
        final: nothing follows, so an unfinished character becomes U+FFFD too.

    Returns:
        The text, and the ``start`` for the next call.
    """
    text, taken = utf_8_decode(data[start:end], "replace", final)
    return text, start + taken


def find_stop(data: bytes, start: int, stops: tuple[bytes, ...]) -> int | None:
    """Where the stop string begins that is complete first after ``start``.

    Of those complete with the same byte it is the longest. The answer is the same whether the
    bytes came one by one or all at once, so a long accepted run stops where plain decoding does.

    Args:
        data: all bytes so far.
        start: how many of them were searched before.
        stops: non-empty.

    Returns:
        The place to cut, possibly before ``start``, or None.
    """
    first: tuple[int, int] | None = None
    for stop in stops:
        at = data.find(stop, max(0, start + 1 - len(stop)))
        if at >= 0 and (first is None or (at + len(stop), at) < first):
            first = (at + len(stop), at)
    return None if first is None else first[1]


def held_back(data: bytes, stops: tuple[bytes, ...]) -> int:
    """How many bytes at the end may be the start of a stop string, and so wait to be shown."""
    longest = max(map(len, stops), default=1) - 1
    for size in range(min(longest, len(data)), 0, -1):
        if any(stop.startswith(data[-size:]) for stop in stops if len(stop) > size):
            return size
    return 0
