"""Launcher of ``cuda/rms_norm.cu``: see ``specrt.reference.rms_norm``."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..acts import Acts
from ..array_checks import check_rms_norm
from .checks import aligned
from .device import Device
from .quantize import acts_arguments, plain_rows, quantize

Array = Any

THREADS = 256
SHARED_BYTES = 4 * (THREADS // 32)


def rms_norm(
    device: Device,
    x: Array,
    weight: Array | None,
    eps: float,
    *,
    out: Array | None,
    add: Array | None = None,
    acts: Acts | None = None,
) -> None:
    """Launch ``rms_norm``: x, out and add [T, D] f32, weight [D] f32."""
    check_rms_norm(x, weight, out, add, acts)
    if not x.size:
        return
    num_rows, width = x.shape
    sizes = np.int32(width), np.float32(eps)
    if acts is not None and acts.first is not None:
        form = "acts_x4" if aligned(16, x, weight, add, out, acts.x) else "acts_x1"
        args = (x, weight, add, out, *sizes, *acts_arguments(acts))
    else:
        written = plain_rows(out, acts, num_rows)
        form = "x4" if width % 4 == 0 and aligned(16, x, weight, add, written) else "x1"
        args = (x, weight, add, written, *sizes)
    device.launch("rms_norm", f"rms_norm_{form}", (num_rows,), THREADS, args, SHARED_BYTES)
    if acts is not None and acts.first is None and out is not None:
        quantize(device, out, out=acts)
