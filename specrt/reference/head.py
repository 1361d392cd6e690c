"""The LM head: logits and the most likely id per row."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..acts import Acts
from .linear import product
from .weights import ReferenceWeight

Array = Any


def head(
    weight: ReferenceWeight,
    acts: Acts,
    *,
    ids: Array,
    logits: Array | None,
    softcap: float,
    scale: float = 1.0,
) -> None:
    """Write ``argmax(l)`` and, where asked for, ``l = softcap tanh(scale x W^T / softcap)``.

    Args:
        weight: The head, [V, D].
        acts: T rows of width D.
        ids: [T] int32: the lowest id among the largest; NaN never wins, and only NaN gives 0.
        logits: [T, V] f32, or None.
        softcap: 0 for none.
        scale: Rounded to float32; 1 changes nothing.
    """
    values = product(weight, acts.rows(len(ids)))
    if scale != 1:
        values = np.float32(scale) * values
    if softcap > 0:
        cap = np.float32(softcap)
        values = cap * np.tanh(values / cap)
    ids[:] = np.argmax(np.where(np.isnan(values), np.float32(-np.inf), values), axis=1)
    if logits is not None:
        logits[:] = values
