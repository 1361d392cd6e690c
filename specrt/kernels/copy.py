"""Launcher of ``cuda/copy.cu``: see ``specrt.reference.copy``."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..array_checks import check_copy
from .checks import items_of
from .device import Device

Array = Any

THREADS = 256


def copy(device: Device, x: Array, *, out: Array) -> None:
    """Launch ``copy``: x and out [T, N] of one dtype, rows strided or not."""
    check_copy(x, out)
    if not x.size:
        return
    item, num_items, parts = items_of(x, out, THREADS)
    args = (x, out, np.int64(x.strides[0]), np.int64(out.strides[0]), np.int64(num_items))
    device.launch("copy", f"copy_{item}", (len(x), parts), THREADS, args)
