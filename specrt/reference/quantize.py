"""Preparing rows for ``linear``: int8 in blocks of 32."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..acts import Acts, Int8Rows
from .fma import fma32

Array = Any

SMALLEST = np.float32(2.0**-64)


def quantize(x: Array, *, out: Acts) -> None:
    """Write rows in the forms that ``out`` has.

    Per block of 32: ``a = max|x|``, ``d = a / 127``, ``q = rne(x * (127 / a))``. A block with
    ``a < 2^-64`` is zeros, one with a value that is not finite has ``d = NaN`` and zeros. The
    second rows are the same of the residual ``fma(-d, q, x)``.

    Args:
        x: [T, K] f32.
        out: T rows of width K.
    """
    if out.x is not None:
        out.x[:] = x
    if out.first is not None:
        _blocks_of_32(x, out.first)
        if out.second is not None:
            d = np.repeat(out.first.d, 32, axis=1)
            _blocks_of_32(fma32(-d, out.first.q.astype(np.float32), x), out.second)


def _blocks_of_32(x: Array, out: Int8Rows) -> None:
    blocks = x.reshape(len(x), -1, 32)
    largest = np.abs(blocks).max(axis=2)  # NaN if any is
    finite = np.isfinite(largest)
    used = finite & (largest >= SMALLEST)
    a = np.where(used, largest, np.float32(1))
    scaled = np.where(used[..., None], blocks, np.float32(0)) * (np.float32(127) / a)[..., None]
    out.q[:] = np.rint(scaled).reshape(x.shape)
    d = np.where(used, a / np.float32(127), np.float32(0))
    out.d[:] = np.where(finite, d, np.float32(np.nan))
    out.sums[:] = out.q.reshape(len(x), -1, 16).sum(axis=2, dtype=np.int32)
