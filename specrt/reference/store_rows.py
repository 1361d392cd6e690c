"""Rings of rows by position."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..state.step import StepInputs

Array = Any


def store_rows(x: Array, step: StepInputs, *, out: Array) -> None:
    """Write ``out[slot, position % R] = x[t]``, the slot and the position being those of row t.

    Args:
        x: [T, D] f32, no two rows of one sequence more than R positions apart.
        step: Says where rows belong.
        out: [slots, R, D] f32, a ring for each sequence.
    """
    num_rows = len(x)
    slots = step.slots[step.row_seqs[:num_rows]]
    out[slots, np.asarray(step.positions[:num_rows]) % out.shape[1]] = x
