"""Rows of sequences as the inputs of a step."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from specrt.errors import ContextError
from specrt.ops import Ops
from specrt.state.kv import PageLayout
from specrt.state.sequence import Sequence

SequenceRows = tuple[Sequence, list[int], int]
"""A sequence, ids of it, and the position of the first of them."""


class StepRows:
    """The inputs of a step, and who fills them.

    Args:
        ops: the op set.
        layout: where keys and values lie.
        num_rows: the most rows of a step.

    Attributes:
        inputs: what ops read.
    """

    def __init__(self, ops: Ops, layout: PageLayout, num_rows: int) -> None:
        slots = layout.num_slots
        self.inputs = ops.step_inputs(num_rows, slots, layout.pages, layout.ring_pages)
        self._context = layout.context
        self._positions = np.arange(layout.context, dtype=np.int32)
        self._page_tables = [layout.table(slot) for slot in range(slots)]
        self._ring_tables = [layout.ring(slot) for slot in range(slots)]
        self._slots: list[int | None] = [None] * slots  # as filled in

    def publish(self, rows: Iterable[SequenceRows]) -> list[int]:
        """Fill in each sequence's ids from a position on, and hand them to the ops.

        Returns:
            The row offsets: the rows of sequence b are ``offsets[b] : offsets[b + 1]``.

        Raises:
            ContextError: rows behind the context.
        """
        step, offsets = self.inputs, [0]
        end = 0
        for number, (sequence, tokens, start_pos) in enumerate(rows):
            begin, end = end, end + len(tokens)
            end_pos = start_pos + len(tokens)
            if end_pos > self._context:
                raise ContextError(
                    f"position {end_pos - 1} is outside the context of {self._context}: load with "
                    "a larger context, or shorten the prompt"
                )
            slot, cursor = sequence.slot, sequence.cursor
            step.tokens[begin:end] = tokens
            step.positions[begin:end] = self._positions[start_pos:end_pos]
            step.row_seqs[begin:end] = number
            if self._slots[number] != slot:
                step.page_table[number] = self._page_tables[slot]
                step.ring_table[number] = self._ring_tables[slot]
                step.slots[number] = self._slots[number] = slot
            step.live[number] = cursor.live
            step.pending[number] = cursor.pending
            offsets.append(end)
        step.row_offsets[:] = offsets + [end] * (len(step.row_offsets) - len(offsets))
        step.publish()
        return offsets
