"""Launcher of ``cuda/scale.cu``: see ``specrt.reference.scale``."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..array_checks import check_scale
from .checks import aligned
from .device import Device

Array = Any

THREADS = 256


def scale(device: Device, x: Array, factor: float, *, out: Array, add: Array | None = None) -> None:
    """Launch ``scale``: x, out and add [T, D] f32."""
    check_scale(x, out, add)
    if not x.size:
        return
    form = "x4" if x.size % 4 == 0 and aligned(16, x, out, add) else "x1"
    args = (x, add, out, np.float32(factor), np.int64(x.size))
    grid = (-(-x.size // (4 * THREADS)),)
    device.launch("scale", f"scale_{form}", grid, THREADS, args)
