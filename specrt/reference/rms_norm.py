"""Root mean square normalisation."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..acts import Acts
from .quantize import quantize

Array = Any


def rms_norm(
    x: Array,
    weight: Array | None,
    eps: float,
    *,
    out: Array | None,
    add: Array | None = None,
    acts: Acts | None = None,
) -> None:
    """Write ``x / sqrt(mean(x^2) + eps) * weight (+ add)`` row by row.

    Args:
        x: [T, D] f32.
        weight: [D] f32, or None for ones.
        eps: Rounded to float32.
        out: [T, D] f32, or None where nobody reads it; it may be x or add.
        add: [T, D] f32, added last.
        acts: Rows that get what ``quantize`` writes of the result.
    """
    result = normed(x, weight, eps)
    if add is not None:
        result = result + add
    if out is not None:
        out[:] = result
    if acts is not None:
        quantize(result, out=acts)


def normed(x: Array, weight: Array | None, eps: float) -> Array:
    """``x / sqrt(mean(x^2) + eps) * weight`` over the last axis."""
    mean = np.mean(x * x, axis=-1, keepdims=True, dtype=np.float32)
    scaled = x * (np.float32(1) / np.sqrt(mean + np.float32(eps)))
    return scaled if weight is None else scaled * weight
