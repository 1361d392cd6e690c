"""Tapped rows, kept until the speculators have heard of them and need them no more."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import numpy as np

from specrt.ops import Array, Ops
from specrt.options import MAX_DRAFT
from specrt.state.messages import Kept, Tap
from specrt.state.sequence import Sequence

RING = 320
"""Rows of each sequence and tap, by position."""

PIECE = 64
"""Rows that speculators hear of at a time."""

MOST_HELD = RING - 2 * (MAX_DRAFT + 1)
"""Of those heard of the newest, which no row that is not heard of has overwritten: these are up to
``BACKLOG`` = 64 kept ones, and those of a window."""


class TapRows:
    """A ring of rows by position for each slot and tap.

    A head reads rows there for as long as it needs them, and may write rows of its own at positions
    that the target has not reached: the target's next rows overwrite them.

    Args:
        ops: the op set.
        num_slots: sequences.
        width: D.
    """

    def __init__(self, ops: Ops, num_slots: int, width: int) -> None:
        self._ops = ops
        self._shape = (num_slots, RING, width)
        self._rings: dict[Tap, Array] = {}

    def ring(self, tap: Tap) -> Array:
        """[slots, RING, D] float32, made when first asked for."""
        if tap not in self._rings:
            self._rings[tap] = self._ops.buffer(self._shape, np.float32)
        return self._rings[tap]

    def kept(
        self, sequence: Sequence, start: int, end: int, taps: Collection[Tap]
    ) -> Iterator[Kept]:
        """The rows of positions start .. end - 1, all of them among the newest ``RING``."""
        history = sequence.history
        while start < end:
            place = start % RING
            stop = min(end, start + min(PIECE, RING - place)) if taps else end
            rows = {
                tap: self._rings[tap][sequence.slot, place : place + stop - start] for tap in taps
            }
            tokens = history[start : stop + 1].tolist()
            yield Kept(sequence, start, tokens[:-1], tokens[-1], rows)
            start = stop

    def fed(
        self,
        sequence: Sequence,
        start: int,
        tokens: list[int],
        following: int | None,
        taps: Mapping[Tap, Array],
    ) -> Iterator[Kept]:
        """The rows of a prompt's chunk, of which those with taps go to their rings piece by piece.

        Args:
            start: the position of the first token.
            tokens: the chunk's.
            following: the id behind them, None if it is not known.
            taps: [rows, D] float32 of each, in the order of the tokens.
        """
        num_rows, begin = len(tokens), 0
        while begin < num_rows:
            place = (start + begin) % RING
            most = min(PIECE, RING - place) if taps else num_rows
            end = min(num_rows, begin + most)
            rows = {}
            for tap, fed in taps.items():
                rows[tap] = self.ring(tap)[sequence.slot, place : place + end - begin]
                self._ops.copy(fed[begin:end], out=rows[tap])
            next_token = tokens[end] if end < num_rows else following
            yield Kept(sequence, start + begin, tokens[begin:end], next_token, rows)
            begin = end

    def read(self, tap: Tap, slot: int, first: int, end: int) -> np.ndarray:
        """The rows [n, D] of positions that are there, on the host."""
        ring = self._ops.to_host(self.ring(tap)[slot])
        return np.array(ring[np.arange(first, end) % RING])

    def assign(self, tap: Tap, slot: int, first: int, rows: np.ndarray) -> None:
        """Keep what ``read`` gave."""
        ring = self.ring(tap)[slot]
        for place, row in enumerate(rows, first):
            place %= RING
            self._ops.assign(ring[place : place + 1], row[None])
