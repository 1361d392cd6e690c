"""Where keys and values lie: pages of 64 positions per slot, and rings for sliding layers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from specrt.ops import PAGE
from specrt.state.sequence import Sequence


@dataclass(frozen=True, slots=True)
class PageLayout:
    """How many pages each slot owns; slot s owns consecutive ones.

    A ring keeps a sliding window and ``spare`` rows: rows of a forward are written before its first
    row reads, and rejected rows must not have overwritten keys that are still in view.

    Args:
        context: positions of a sequence.
        window: the sliding layers' window, 0 if there are none.
        spare: the most rows of one forward.
        num_slots: sequences.
    """

    context: int
    window: int
    spare: int
    num_slots: int

    @property
    def pages(self) -> int:
        """Pages of one slot in a layer that keeps every position."""
        return -(-self.context // PAGE)

    @property
    def ring_pages(self) -> int:
        """Pages of one slot in a sliding layer: never more than it takes to keep everything."""
        if not self.window:
            return 0
        return min(self.pages, -(-(self.window + self.spare) // PAGE) + 1)

    def table(self, slot: int) -> np.ndarray:
        """[pages] int32: the pages of a slot in a layer that keeps every position."""
        return np.arange(slot * self.pages, (slot + 1) * self.pages, dtype=np.int32)

    def ring(self, slot: int) -> np.ndarray:
        """[ring_pages] int32: the pages of a slot in a sliding layer."""
        return np.arange(slot * self.ring_pages, (slot + 1) * self.ring_pages, dtype=np.int32)

    def layer_pages(self, window: int) -> tuple[int, int]:
        """Of a layer with that window, 0 for none: pages of all slots, and ring pages of one."""
        ring_pages = self.ring_pages if window else 0
        return self.num_slots * (ring_pages or self.pages), ring_pages

    def seen(
        self, slot: int, window: int, end: int, first: int = 0
    ) -> tuple[np.ndarray, np.ndarray]:
        """The positions before ``end`` that a row there sees, behind the page of each.

        Args:
            window: the layer's, 0 for none.
            first: positions below it are left out.
        """
        if window:
            first = max(first, end - window + 1)
        positions = np.arange(first, end, dtype=np.int32)
        table = self.ring(slot) if window else self.table(slot)
        return table[positions // PAGE % len(table)], positions

    def lowest_kept(self, sequence: Sequence) -> int:
        """The lowest position that the slot's rings still hold."""
        if not self.window:
            return 0
        return max(sequence.lowest_kept, sequence.high_water - self.ring_pages * PAGE)

    def can_rewind(self, sequence: Sequence, num_tokens: int) -> bool:
        """True if a next row at ``num_tokens`` finds all keys of its window."""
        if not self.window or num_tokens == 0:
            return True
        return max(0, num_tokens - self.window + 1) >= self.lowest_kept(sequence)
