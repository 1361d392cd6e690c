"""The ids of a block one after the other, each row's logits biased by the id before it."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..acts import Acts
from ..state.step import StepInputs
from .embed import embed
from .linear import product
from .quantize import quantize
from .weights import ReferenceWeight

Array = Any


def markov(
    logits: Array,
    hidden: Array,
    step: StepInputs,
    *,
    predecessor: ReferenceWeight,
    successor: ReferenceWeight,
    confidence: Array | None,
    names: Array | None,
    acts: Acts,
    ids: Array,
    confidences: Array | None,
) -> None:
    """Add ``successor predecessor[w]`` to each row's logits and take their argmax, row by row.

    w is the id in the step's first row of that sequence, behind it the argmax of the row before.
    With a confidence head ``sigmoid(c [hidden, predecessor[w]] + bias)`` is written too.

    Args:
        logits: [B * n, Vd] f32, the n rows of each of B blocks; biased in place.
        hidden: [B * n, D] f32.
        step: ``tokens`` and ``row_offsets``.
        predecessor: [V, R], as ``embed`` reads it.
        successor: [Vd, R].
        confidence: [D + R + 1] f32, weights c and the bias; None for no such head.
        names: [Vd] int32, the ids that rows of the logits stand for; None for themselves.
        acts: Room for B rows of width R in the form that the successor reads.
        ids: [B, n] int32, named ones; the lowest among the largest, NaN never wins.
        confidences: [B, n] f32, or None.
    """
    num_seqs, num_rows = ids.shape
    before = np.array(step.tokens[step.row_offsets[:num_seqs]])
    rows = np.zeros((num_seqs, predecessor.shape[1]), np.float32)
    for t in range(num_rows):
        at = np.arange(num_seqs) * num_rows + t
        embed(predecessor, before, scale=1.0, out=rows)
        quantize(rows, out=acts.rows(num_seqs))
        logits[at] = logits[at] + product(successor, acts.rows(num_seqs))
        found = np.argmax(np.where(np.isnan(logits[at]), -np.inf, logits[at]), axis=1)
        before = found.astype(np.int32) if names is None else names[found]
        if confidences is not None and confidence is not None:
            joined = np.concatenate([hidden[at], rows], axis=1)
            confidences[:, t] = _sigmoid(joined @ confidence[:-1] + confidence[-1])
        ids[:, t] = before


def _sigmoid(x: Array) -> Array:
    with np.errstate(over="ignore"):
        return np.float32(1) / (np.float32(1) + np.exp(-x))
