"""Launcher of ``cuda/copy.cu``: see ``specrt.reference.copy``."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..array_checks import check_copy
from ._module import Device
from .checks import MAX_GRID_Y, aligned

Array = Any

THREADS = 256
ITEM_BYTES = (16, 4, 1)


def copy(device: Device, x: Array, *, out: Array) -> None:
    """Launch ``copy``: x and out [T, N] of one dtype, rows strided or not."""
    check_copy(x, out)
    if not x.size:
        return
    row_bytes = x.shape[1] * x.itemsize
    sizes = (row_bytes, x.strides[0], out.strides[0])
    item = next(n for n in ITEM_BYTES if aligned(n, x, out) and not any(size % n for size in sizes))
    num_items = row_bytes // item
    grid = (len(x), min(-(-num_items // THREADS), MAX_GRID_Y))
    args = (x, out, np.int64(x.strides[0]), np.int64(out.strides[0]), np.int64(num_items))
    device.launch("copy", f"copy_{item}", grid, THREADS, args)
