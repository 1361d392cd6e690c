"""Launcher of ``cuda/quantize.cu``: see ``specrt.reference.quantize``."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..acts import Acts
from ..array_checks import check
from ..errors import MismatchError
from ._module import Device
from .checks import aligned
from .copy import copy

THREADS = 256


def quantize(device: Device, x: Any, *, out: Acts) -> None:
    """Launch ``quantize`` of x [T, K] f32; ``out``, laid out as the host's, may have more rows."""
    check("quantize: x", x, np.float32, (len(x), out.width))
    if out.num_rows < len(x):
        raise MismatchError(f"quantize: x has {len(x)} rows; the acts hold {out.num_rows}")
    count = x.size
    if not count:
        return
    if out.first is None:
        if out.x is not None:
            copy(device, x, out=out.x[: len(x)])
        return
    first, second = out.first, out.second
    firsts = (first.q, first.d, first.sums)
    seconds = (None, None, None) if second is None else (second.q, second.d, second.sums)
    if not aligned(4, firsts[0], seconds[0]):
        raise MismatchError("quantize: codes start at no multiple of 4 bytes; use ops.acts(...)")
    form = "x4" if aligned(16, x, out.x) else "x1"
    args = (x, np.int64(count), out.x, *firsts, *seconds)
    num_blocks = -(-count // (4 * THREADS))
    device.launch("quantize", f"quantize_{form}", (num_blocks,), THREADS, args)
