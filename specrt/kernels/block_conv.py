"""Launcher of ``cuda/block_conv.cu``: see ``specrt.reference.block_conv``."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..acts import Acts
from ..array_checks import check_block_conv
from ..state.step import StepInputs
from .checks import aligned
from .device import Device
from .quantize import acts_arguments

Array = Any

THREADS = 256


def block_conv(
    device: Device,
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
    """Launch ``block_conv``: x, add, out [T, D], dynamic [T, 2 K G], base [2, K, D], all f32."""
    check_block_conv(x, dynamic, base, step, side, out, add, acts)
    if not x.size:
        return
    num_rows, width = x.shape
    taps, half = base.shape[1], dynamic.shape[1] // 2
    groups, rows = half // taps, (step.row_seqs, step.row_offsets)
    prepared = (None,) * 7 if acts is None else acts_arguments(acts)
    fours = width // groups % 4 == 0
    form = "x4" if fours and aligned(16, x, base[side], add, out, prepared[0]) else "x1"
    args = (
        *(x, dynamic.reshape(-1)[side * half :], base[side], add, out, *rows),
        *map(np.int32, (width, 2 * half, taps, groups)),
        *prepared,
    )
    grid = (num_rows, -(-width // (4 * THREADS)))
    device.launch("block_conv", f"block_conv_{form}", grid, THREADS, args)
