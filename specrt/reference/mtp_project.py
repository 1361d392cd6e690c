"""What a NextN block reads: a token beside the hidden row before it."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..acts import Acts
from ..state.step import StepInputs
from .embed import embed
from .linear import linear
from .quantize import quantize
from .rms_norm import normed
from .weights import ReferenceWeight

Array = Any


def mtp_project(
    embedding: ReferenceWeight,
    hidden: Array,
    projection: ReferenceWeight,
    step: StepInputs,
    *,
    embedding_norm: Array,
    hidden_norm: Array,
    scale: float,
    eps: float,
    acts: Acts,
    out: Array,
) -> None:
    """Write ``projection [rms(scale * embedding[token]), rms(hidden[slot, (position - 1) % R])]``.

    Before position 0 stands a row of zeros. A row is NaN if its id is no row of the embedding.

    Args:
        embedding: [V, D], as ``embed`` reads it.
        hidden: [slots, R, D] f32, hidden rows of each sequence by position, as ``store_rows``
            writes them.
        projection: [N, 2 D].
        step: Its first T rows are projected.
        embedding_norm, hidden_norm: [D] f32, as in ``rms_norm``.
        scale, eps: Rounded to float32.
        acts: Room for T rows of width 2 D in the form that the projection reads.
        out: [T, N] f32.
    """
    num_rows, width = len(out), hidden.shape[2]
    tokens = np.zeros((num_rows, width), np.float32)
    embed(embedding, step.tokens, scale=scale, out=tokens)
    positions = np.asarray(step.positions[:num_rows])
    slots = step.slots[step.row_seqs[:num_rows]]
    before = hidden[slots, (positions - 1) % hidden.shape[1]]
    before = np.where(positions[:, None] > 0, before, np.float32(0))
    rows = [normed(tokens, embedding_norm, eps), normed(before, hidden_norm, eps)]
    quantize(np.concatenate(rows, axis=1), out=acts)
    linear([(projection, out)], acts)
