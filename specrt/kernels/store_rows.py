"""Launcher of ``cuda/store_rows.cu``: see ``specrt.reference.store_rows``."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..array_checks import check_store_rows
from ..state.step import StepInputs
from .checks import MAX_GRID_Y, aligned
from .device import Device

Array = Any

THREADS = 256


def store_rows(device: Device, x: Array, step: StepInputs, *, out: Array) -> None:
    """Launch ``store_rows``: x [T, D] f32, out [slots, R, D] f32."""
    check_store_rows(x, step, out)
    if not x.size:
        return
    num_rows, width = x.shape
    item = 16 if width % 4 == 0 and aligned(16, x, out) else 4
    num_items = 4 * width // item
    grid = (num_rows, min(-(-num_items // THREADS), MAX_GRID_Y))
    sizes = np.int32(out.shape[1]), np.int64(num_items)
    args = (x, step.positions, step.row_seqs, step.slots, out, *sizes)
    device.launch("store_rows", f"store_rows_{item}", grid, THREADS, args)
