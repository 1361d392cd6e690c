"""Copying rows."""

from __future__ import annotations

from typing import Any

Array = Any


def copy(x: Array, *, out: Array) -> None:
    """Write x.

    Args:
        x: [T, N], any dtype; rows may be strided.
        out: [T, N] of the same dtype, apart from x; rows may be strided.
    """
    out[:] = x
