"""Launcher of ``block_conv``: see ``specrt.reference.block_conv``."""

from __future__ import annotations

from typing import Any

from .._ext.host_ops import Tape, record_block_conv
from ..acts import Acts
from ..array_checks import check_block_conv
from ..state.step import StepInputs

Array = Any


def block_conv(
    tape: Tape,
    x: Array,
    dynamic: Array,
    base: Array,
    step: StepInputs,
    *,
    side: int,
    out: Array | None,
    add: Array | None = None,
    acts: Acts | None = None,
) -> None:
    """Record ``block_conv``: x, add, out [T, D], dynamic [T, 2 K G], base [2, K, D], all f32."""
    check_block_conv(x, dynamic, base, step, side, out, add, acts)
    record_block_conv(tape, x, dynamic, base, step, side, out, add, acts)
