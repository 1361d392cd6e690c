"""Choosing rows."""

from __future__ import annotations

from typing import Any

Array = Any


def select(x: Array, index: Array, *, out: Array) -> None:
    """Write ``x[index]`` row by row, zeros where the index is no row of x.

    Args:
        x: [T, N], any dtype; rows may be strided.
        index: [n] int32.
        out: [n, N] of the same dtype, apart from x; rows may be strided.
    """
    there = (index >= 0) & (index < len(x))
    out[:] = 0
    out[there] = x[index[there]]
