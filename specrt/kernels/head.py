"""Launcher of ``cuda/head.cu``: see ``specrt.reference.head``."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..acts import Acts
from ..array_checks import check_head
from .device import Device
from .linear import launch_linear
from .weights import KernelWeight

Array = Any

THREADS = 256


def head(
    device: Device,
    weight: KernelWeight,
    acts: Acts,
    *,
    ids: Array,
    logits: Array | None,
    softcap: float,
    scale: float = 1.0,
) -> None:
    """Launch ``head``: ids [T] int32, logits [T, V] f32 or None."""
    num_rows = check_head(weight, acts, ids, logits, scale)
    if not num_rows:
        return
    keys = weight.keys(num_rows)
    launch_linear(
        device, [(weight, logits)], acts, num_rows, keys=keys, scale=scale, softcap=softcap
    )
    args = (keys, np.int32(weight.num_tiles), ids)
    device.launch("head", "head_ids", (num_rows,), THREADS, args, 8 * (THREADS // 32))
