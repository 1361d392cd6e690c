"""Launcher of ``cuda/rms_norm.cu``: see ``specrt.reference.rms_norm``."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..array_checks import check_rms_norm
from ._module import Device
from .checks import aligned

Array = Any

THREADS = 256


def rms_norm(
    device: Device,
    x: Array,
    weight: Array | None,
    eps: float,
    *,
    out: Array,
    add: Array | None = None,
) -> None:
    """Launch ``rms_norm``: x, out and add [T, D] f32, weight [D] f32."""
    check_rms_norm(x, weight, out, add)
    if not x.size:
        return
    num_rows, width = x.shape
    form = "x4" if width % 4 == 0 and aligned(16, x, weight, add, out) else "x1"
    args = (x, weight, add, out, np.int32(width), np.float32(eps))
    shared_bytes = 4 * (THREADS // 32)
    device.launch("rms_norm", f"rms_norm_{form}", (num_rows,), THREADS, args, shared_bytes)
