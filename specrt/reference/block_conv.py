"""The convolution over the rows of a block whose taps come from each row."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..acts import Acts
from ..state.step import StepInputs
from .fma import fma32
from .quantize import quantize

Array = Any


def block_conv(
    x: Array,
    dynamic: Array,
    base: Array,
    step: StepInputs,
    *,
    side: int,
    out: Array | None,
    add: Array | None = None,
    acts: Acts | None = None,
) -> None:
    """Write ``y[t, c] = sum_j (dynamic[t, side, j, c // g] + base[side, j, c]) x[t - j, c]``.

    Taps j ascend, each an fma onto the sum so far, which starts at 0; rows before the first of
    the row's own sequence in this step count as zero and their taps are left out. With ``add``
    the result is ``add + y``.

    Args:
        x: [T, D] f32.
        dynamic: [T, 2 K G] f32, a row being [2, K, G]; g = D / G.
        base: [2, K, D] f32.
        step: ``row_seqs`` and ``row_offsets`` say where blocks begin.
        side: 0 or 1.
        out: [T, D] f32, not x; may be add. None if only acts are wanted.
        add: [T, D] f32, or None.
        acts: T rows of width D, which the result is prepared into, or None.
    """
    num_rows, width = x.shape
    taps = base.shape[1]
    groups = dynamic.shape[1] // (2 * taps)
    varying = dynamic.reshape(num_rows, 2, taps, groups)[:, side]
    y = np.zeros_like(x)
    starts = step.row_offsets[step.row_seqs[:num_rows]]
    for t in range(num_rows):
        for j in range(min(taps, t - int(starts[t]) + 1)):
            tap = np.repeat(varying[t, j], width // groups) + base[side, j]
            y[t] = fma32(tap, x[t - j], y[t])
    if add is not None:
        y = add + y
    if out is not None:
        out[:] = y
    if acts is not None:
        quantize(y, out=acts)
