"""Launcher of ``cuda/head.cu``: see ``specrt.reference.head``."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..acts import Acts
from ..array_checks import check
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
) -> None:
    """Launch ``head``: ids [T] int32, logits [T, V] f32 or None."""
    num_rows = len(ids)
    check("head: ids", ids, np.int32, (num_rows,))
    acts.check_readable(weight, num_rows)
    if logits is not None:
        check("head: logits", logits, np.float32, (num_rows, weight.shape[0]))
    if not num_rows:
        return
    keys = weight.keys(num_rows)
    launch_linear(device, [(weight, logits)], acts, num_rows, keys=keys, softcap=softcap)
    args = (keys, np.int32(weight.num_tiles), ids)
    device.launch("head", "head_ids", (num_rows,), THREADS, args, 8 * (THREADS // 32))
