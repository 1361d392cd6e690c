"""Launcher of ``copy``: see ``specrt.reference.copy``."""

from __future__ import annotations

from typing import Any

from .._ext.host_ops import Tape, record_copy
from ..array_checks import check_copy

Array = Any


def copy(tape: Tape, x: Array, *, out: Array) -> None:
    """Record ``copy``: x and out [T, N] of one dtype, rows strided or not."""
    check_copy(x, out)
    record_copy(tape, x, out)
