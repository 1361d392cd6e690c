"""Scores of candidates beside each candidate of the row before."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..state.step import StepInputs
from .quant_blocks import dequantize
from .weights import ReferenceWeight

Array = Any


def lattice(
    ids: Array,
    logits: Array,
    gates: Array,
    step: StepInputs,
    *,
    predecessor: ReferenceWeight,
    successor: ReferenceWeight,
    names: Array | None,
    scores: Array,
) -> None:
    """Write ``logits[t, c] + sum_r (predecessor[w, r] gate[t, r]) successor[id_c, r]``.

    Row 0 of a block has one predecessor w, the id in the step's first row of that sequence; behind
    it the k candidates of the row before are w in turn. So a block's scores are k numbers, then
    [k predecessors, k candidates] of each further row.

    Args:
        ids: [B * n, k] int32, the candidates of the n rows of each of B blocks, as ``top_k``
            writes them.
        logits: [B * n, k] f32 likewise.
        gates: [B * n, R] f32.
        step: ``tokens`` and ``row_offsets``.
        predecessor, successor: [V, R], as ``embed`` reads them; a row is NaN if its id is none.
        names: [Vd] int32, the ids that ``ids`` stand for; None for themselves.
        scores: [B, k + k k (n - 1)] f32.
    """
    num_seqs = len(scores)
    num_rows = len(ids) // num_seqs
    named = ids if names is None else names[ids]
    for b in range(num_seqs):
        end = 0
        before = step.tokens[step.row_offsets[b] : step.row_offsets[b] + 1]
        for t in range(b * num_rows, (b + 1) * num_rows):
            weighted = _rows(predecessor, before) * gates[t]
            pairs = weighted @ _rows(successor, named[t]).T
            begin, end = end, end + pairs.size
            scores[b, begin:end] = (logits[t] + pairs).reshape(-1)
            before = named[t]


def _rows(weight: ReferenceWeight, ids: Array) -> Array:
    """Rows [n, R] f32 of a table."""
    valid = (ids >= 0) & (ids < weight.shape[0])
    rows = dequantize(weight.type_name, weight.raw[np.where(valid, ids, 0)])
    return np.where(valid[:, None], rows, np.float32(np.nan))
