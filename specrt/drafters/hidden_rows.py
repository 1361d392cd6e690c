"""Hidden rows that a draft head may still need, of the newest positions."""

from __future__ import annotations

import numpy as np

from specrt.ops import Array, Ops
from specrt.options import MAX_DRAFT

RING = 256
"""Rows of each sequence: what waits to be taken in, and what a few steps back may need."""

MOST_HELD = RING - MAX_DRAFT
"""Of the target's: behind them a draft leaves the head's own."""


class HiddenRows:
    """A ring of rows by position for each slot.

    Args:
        ops: the op set.
        num_slots: sequences.
        width: D.

    Attributes:
        array: [slots, RING, D] float32.
    """

    def __init__(self, ops: Ops, num_slots: int, width: int) -> None:
        self._ops = ops
        self.array = ops.buffer((num_slots, RING, width), np.float32)

    def write(self, slot: int, first: int, rows: Array) -> None:
        """Keep rows [n, D] of the target's, n <= RING, from a position on."""
        ring, place, count = self.array[slot], first % RING, len(rows)
        until_wrap = min(count, RING - place)
        self._ops.copy(rows[:until_wrap], out=ring[place : place + until_wrap])
        if until_wrap < count:
            self._ops.copy(rows[until_wrap:], out=ring[: count - until_wrap])

    def read(self, slot: int, first: int, end: int) -> np.ndarray:
        """The rows of positions that are there, on the host."""
        ring = self._ops.to_host(self.array[slot])
        return np.array(ring[np.arange(first, end) % RING])

    def assign(self, slot: int, first: int, rows: np.ndarray) -> None:
        """Keep what ``read`` gave."""
        for place, row in enumerate(rows, first):
            place %= RING
            self._ops.assign(self.array[slot, place : place + 1], row[None])
