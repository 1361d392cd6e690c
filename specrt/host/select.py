"""Launcher of ``select``: see ``specrt.reference.select``."""

from __future__ import annotations

from typing import Any

from .._ext.host_ops import Tape, record_select
from ..array_checks import check_select

Array = Any


def select(tape: Tape, x: Array, index: Array, *, out: Array) -> None:
    """Record ``select``: x [T, N] and out [n, N] of one dtype, rows strided or not; index int32."""
    check_select(x, index, out)
    record_select(tape, x, index, out)
