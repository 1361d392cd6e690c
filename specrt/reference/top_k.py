"""The largest logits of a row."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = Any


def top_k(logits: Array, *, ids: Array, values: Array) -> None:
    """Write the k best ids of each row with their logits, best first.

    Args:
        logits: [T, V] f32; NaN counts as -inf.
        ids: [T, k] int32; among equal logits the lower id comes first.
        values: [T, k] f32.
    """
    ranked = np.where(np.isnan(logits), np.float32(-np.inf), logits)
    ids[:] = np.argsort(-ranked, axis=1, kind="stable")[:, : ids.shape[1]]
    values[:] = np.take_along_axis(logits, ids.astype(np.intp), axis=1)
