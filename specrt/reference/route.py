"""Which experts a row goes to."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..experts import Routed

Array = Any

SMALLEST_SUM = np.float32(2.0**-14)


def route(logits: Array, *, out: Routed) -> None:
    """Write the k largest of each row's logits, and their weights.

    ``p_e = exp(l_e - max l) / sum_i exp(l_i - max l)`` over all experts; the weight of a chosen
    one is ``p_e / max(sum of the chosen p, 2^-14)``, the sum ascending in rank. Of equal logits
    the lower id comes first; a NaN counts as -inf, and what equals the largest has exp 1.

    Args:
        logits: [T, E] f32.
        out: ``ids`` and ``weights`` [T, k], k at most E.
    """
    num_used = out.ids.shape[1]
    logits = np.where(np.isnan(logits), -np.inf, logits)
    ids = np.argsort(-logits, axis=1, kind="stable")[:, :num_used]
    largest = logits.max(axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):
        powers = np.where(logits == largest, 1, np.exp(logits - largest)).astype(logits.dtype)
    chosen = np.take_along_axis(powers, ids, axis=1) / powers.sum(axis=1, keepdims=True)
    total = np.zeros_like(chosen[:, 0])
    for rank in range(num_used):
        total = total + chosen[:, rank]
    out.ids[:] = ids
    out.weights[:] = chosen / np.maximum(total, SMALLEST_SUM)[:, None]
