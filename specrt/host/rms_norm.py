"""Launcher of ``rms_norm``: see ``specrt.reference.rms_norm``."""

from __future__ import annotations

from typing import Any

from .._ext.host_ops import Tape, record_rms_norm
from ..acts import Acts
from ..array_checks import check_rms_norm

Array = Any


def rms_norm(
    tape: Tape,
    x: Array,
    weight: Array | None,
    eps: float,
    *,
    out: Array | None,
    add: Array | None = None,
    acts: Acts | None = None,
) -> None:
    """Record ``rms_norm``: x, out and add [T, D] f32, weight [D] f32."""
    check_rms_norm(x, weight, out, add, acts)
    record_rms_norm(tape, x, weight, eps, out, add, acts)
