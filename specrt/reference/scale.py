"""Rows times a number."""

from __future__ import annotations

from typing import Any

import numpy as np

from .fma import fma32

Array = Any


def scale(x: Array, factor: float, *, out: Array, add: Array | None = None) -> None:
    """Write ``factor x``, with ``add`` as ``fma(factor, x, add)``.

    Args:
        x: [T, D] f32.
        factor: Rounded to float32.
        out: [T, D] f32, may be x or add.
        add: [T, D] f32, or None.
    """
    by = np.float32(factor)
    out[:] = x * by if add is None else fma32(np.broadcast_to(by, x.shape), x, add)
