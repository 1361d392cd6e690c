"""From the likeliest ids behind a draft to its next token, which is fed at once."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ops import PAGE
from ..state.step import StepInputs

Array = Any


def draft_token(
    ids: Array,
    logits: Array,
    step: StepInputs,
    *,
    names: Array | None,
    gates: Array,
    tokens: Array,
    shares: Array,
    stop: Array,
) -> None:
    """Note each sequence's likeliest id and its share, and put it in place of the row before it.

    With ``share = 1 / sum_i exp(logits[b, i] - logits[b, 0])``, ascending, and
    ``p = positions[b] + 1``: ``tokens[b, p % R] = id``, ``shares[b, p % R] = share``; the step's
    row b becomes that id at position p, or at the context's last one. ``stop`` is 1 if no share
    reaches its gate, else 0: whoever drafts for several sequences goes on while one of them passes.

    Args:
        ids: [B, k] int32, best first, as ``top_k`` writes them.
        logits: [B, k] f32.
        step: Of one row per sequence; tokens and positions of these rows change.
        names: [n] int32, the ids that ``ids`` stand for; None for themselves.
        gates: [B] f32.
        tokens: [B', R] int32, by position; B' >= B.
        shares: [B', R] f32 likewise; NaN where a logit is.
        stop: [1] int32.
    """
    num_seqs, ring = len(ids), tokens.shape[1]
    last = step.page_table.shape[1] * PAGE - 1
    stop[0] = 1
    for b in range(num_seqs):
        share = share_of_first(logits[b])
        found, at = ids[b, 0], int(step.positions[b]) + 1
        tokens[b, at % ring] = step.tokens[b] = found if names is None else names[found]
        shares[b, at % ring] = share
        step.positions[b] = min(at, last)
        if share >= gates[b]:
            stop[0] = 0


def share_of_first(logits: Array) -> np.float32:
    """``1 / sum_i exp(l_i - l_0)`` of logits [k] f32, added ascending."""
    total = np.float32(0)
    with np.errstate(invalid="ignore", over="ignore"):
        for weight in np.exp(logits - logits[0]):
            total = total + weight
        return np.float32(1) / total
