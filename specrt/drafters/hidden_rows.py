"""Hidden rows of the target that a draft head may still need, of the newest positions."""

from __future__ import annotations

import numpy as np

from specrt.ops import Array, Ops

RING = 256
"""Rows of each sequence: what waits to be taken in, and what a few steps back may need."""


class HiddenRows:
    """A ring of rows by position for each slot.

    Args:
        ops: the op set.
        num_slots: sequences.
        width: D.

    Attributes:
        array: [slots * RING, D] float32.
    """

    def __init__(self, ops: Ops, num_slots: int, width: int) -> None:
        self._ops = ops
        self.array = ops.buffer((num_slots * RING, width), np.float32)

    @staticmethod
    def places(slot: int, first: int, end: int) -> list[int]:
        """The row of ``array`` for each position from first on; -1, no row, below position 0."""
        begin = slot * RING
        return [begin + p % RING if p >= 0 else -1 for p in range(first, end)]

    def write(self, slot: int, first: int, rows: Array) -> None:
        """Keep rows [n, D] of the target's, n <= RING, from a position on."""
        place, count = slot * RING + first % RING, len(rows)
        until_wrap = min(count, RING - first % RING)
        self._ops.copy(rows[:until_wrap], out=self.array[place : place + until_wrap])
        if until_wrap < count:
            begin = slot * RING
            rest = self.array[begin : begin + count - until_wrap]
            self._ops.copy(rows[until_wrap:], out=rest)

    def read(self, slot: int, first: int, end: int) -> np.ndarray:
        """The rows of positions that are there, on the host."""
        return np.array(self._ops.to_host(self.array)[self.places(slot, first, end)])

    def assign(self, slot: int, first: int, rows: np.ndarray) -> None:
        """Keep what ``read`` gave."""
        for place, row in zip(self.places(slot, first, first + len(rows)), rows, strict=True):
            self._ops.assign(self.array[place : place + 1], row[None])
