"""Greedy acceptance: how far each window's rows agree with its draft."""

from __future__ import annotations

from typing import Any

from ..state.step import StepInputs

Array = Any


def accept(ids: Array, step: StepInputs, *, out: Array) -> None:
    """Write per window how many draft tokens its rows drew, the next token, and where it stands.

    Row ``first + i`` of a window drew ``ids[first + i]``, and row ``first + i + 1`` holds the draft
    token that it is compared with. With m agreements before the first difference:
    ``out = m, ids[first + m], positions[first] + m + 1``.

    Args:
        ids: [T] int32, the argmax of each row.
        step: Its ``row_offsets`` are T from the end of the last window on.
        out: [B, 3] int32, B the most sequences that the step holds; zeros where a window is empty.
    """
    out[:] = 0
    for b, first in enumerate(step.row_offsets[:-1]):
        rows = ids[first : step.row_offsets[b + 1]]
        if not len(rows):
            continue
        draft = step.tokens[first + 1 : first + len(rows)]
        differs = [*(rows[:-1] != draft), True]
        m = differs.index(True)
        out[b] = m, rows[m], step.positions[first] + m + 1
