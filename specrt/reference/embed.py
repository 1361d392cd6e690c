"""Token embeddings."""

from __future__ import annotations

from typing import Any

import numpy as np

from .quant_blocks import dequantize
from .weights import ReferenceWeight

Array = Any


def embed(weight: ReferenceWeight, tokens: Array, *, scale: float, out: Array) -> None:
    """Write the dequantised rows of the tokens times ``scale``; a row is NaN if its id is no row.

    Args:
        weight: ``token_embd``, [V, D].
        tokens: [>= T] int32; the first T are read.
        scale: Rounded to float32.
        out: [T, D] f32.
    """
    ids = tokens[: len(out)]
    valid = (ids >= 0) & (ids < weight.shape[0])
    rows = dequantize(weight.type_name, weight.raw[np.where(valid, ids, 0)])
    out[:] = np.where(valid[:, None], rows * np.float32(scale), np.float32(np.nan))
