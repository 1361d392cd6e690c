"""What changes between two runs of a program: one int32 block."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

ALIGNMENT = 16  # int32 values: each array begins on a line of its own


class StepInputs:
    """The step values that ops read, as views of one int32 block.

    Args:
        num_rows: the most rows of a step.
        num_seqs: the most sequences, B.
        num_pages: pages of 64 positions in the context.
        ring_pages: pages of a sliding layer's ring, 0 for none.
        buffer: makes an array from shape and dtype; the op set's.

    Attributes:
        block: all values.
        tokens, positions, row_seqs: [num_rows].
        row_offsets: [B + 1].
        slots, live, pending: [B], of the sequences' recurrent states.
        lowest: [B], positions below it have no keys in the caches.
        page_table, ring_table: [B, num_pages], [B, ring_pages].
    """

    def __init__(
        self,
        num_rows: int,
        num_seqs: int,
        num_pages: int,
        ring_pages: int,
        buffer: Callable[[tuple[int, ...], Any], Any] = np.zeros,
    ) -> None:
        shapes = (
            *[(num_rows,)] * 3,
            (num_seqs + 1,),
            *[(num_seqs,)] * 4,
            (num_seqs, num_pages),
            (num_seqs, ring_pages),
        )
        sizes = [-(-int(np.prod(shape)) // ALIGNMENT) * ALIGNMENT for shape in shapes]
        self.block = buffer((sum(sizes),), np.int32)
        views, start = [], 0
        for shape, size in zip(shapes, sizes, strict=True):
            views.append(self.block[start : start + int(np.prod(shape))].reshape(shape))
            start += size
        self.tokens, self.positions, self.row_seqs, self.row_offsets, *views = views
        self.slots, self.live, self.pending, self.lowest, *tables = views
        self.page_table, self.ring_table = tables

    def publish(self) -> None:
        """Nothing here: ops read the values where they are written."""
