"""Launcher of ``cuda/embed.cu``: see ``specrt.reference.embed``."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..array_checks import check
from .checks import aligned
from .device import Device
from .weights import KernelWeight, defines_of

THREADS = 256


def embed(device: Device, weight: KernelWeight, tokens: Any, *, scale: float, out: Any) -> None:
    """Launch ``embed``: the first T of tokens int32, out [T, D] f32."""
    num_rows, width = weight.shape
    check("embed: out", out, np.float32, (len(out), width))
    check("embed: tokens", tokens[: len(out)], np.int32, (len(out),))
    if not out.size:
        return
    form = "x4" if width % 4 == 0 and aligned(16, out) else "x1"
    grid = (len(out), -(-width // (4 * THREADS)))
    sizes = (np.int32(num_rows), np.int32(width), np.float32(scale))
    args = (weight.tiles, tokens, out, *sizes)
    device.launch("embed", f"embed_{form}", grid, THREADS, args, 0, defines_of(weight))
