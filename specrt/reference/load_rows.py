"""Rows of several rings, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..acts import Acts
from ..state.step import StepInputs
from .quantize import quantize

Array = Any


def load_rows(rings: Sequence[Array], step: StepInputs, *, acts: Acts) -> None:
    """Prepare ``x[t] = [ring[slot, position % R] for each ring]`` of every row t.

    Args:
        rings: At most 16, each [slots, R, D] f32, as ``store_rows`` writes it, with its own R and
            D.
        step: Says which rows: slots and positions.
        acts: T rows of width sum D.
    """
    positions = np.asarray(step.positions[: acts.num_rows])
    slots = step.slots[step.row_seqs[: acts.num_rows]]
    rows = [ring[slots, positions % ring.shape[1]] for ring in rings]
    quantize(np.concatenate(rows, axis=1), out=acts)
