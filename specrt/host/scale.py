"""Launcher of ``scale``: see ``specrt.reference.scale``."""

from __future__ import annotations

from typing import Any

from .._ext.host_ops import Tape, record_scale
from ..array_checks import check_scale

Array = Any


def scale(tape: Tape, x: Array, factor: float, *, out: Array, add: Array | None = None) -> None:
    """Record ``scale``: x, out and add [T, D] f32."""
    check_scale(x, out, add)
    record_scale(tape, x, factor, out, add)
