"""Launcher of ``copy``: see ``specrt.reference.copy``."""

from __future__ import annotations

from typing import Any

from .._ext.host_ops import Tape, record_copy
from ..errors import MismatchError

Array = Any


def copy(tape: Tape, x: Array, *, out: Array) -> None:
    """Record ``copy``: x and out [T, N] of one dtype, rows strided or not."""
    for name, array in (("x", x), ("out", out)):
        if array.ndim != 2 or array.strides[1] != array.itemsize:
            raise MismatchError(
                f"copy: {name} has shape {array.shape} and strides {array.strides}; "
                "expected [T, N] with adjacent columns"
            )
    if x.dtype != out.dtype or x.shape != out.shape:
        raise MismatchError(
            f"copy: out is {out.dtype} {out.shape}; expected {x.dtype} {x.shape} as x"
        )
    record_copy(tape, x, out)
