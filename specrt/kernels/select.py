"""Launcher of ``cuda/select.cu``: see ``specrt.reference.select``."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..array_checks import check_select
from .checks import items_of
from .device import Device

Array = Any

THREADS = 256


def select(device: Device, x: Array, index: Array, *, out: Array) -> None:
    """Launch ``select``: x [T, N] and out [n, N] of one dtype, rows strided or not; index int32."""
    check_select(x, index, out)
    if not out.size:
        return
    item, num_items, parts = items_of(x, out, THREADS)
    strides = np.int64(x.strides[0]), np.int64(out.strides[0])
    args = (x, index, out, np.int32(len(x)), *strides, np.int64(num_items))
    device.launch("select", f"select_{item}", (len(out), parts), THREADS, args)
