"""Launcher of ``cuda/top_k.cu``: see ``specrt.reference.top_k``."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..array_checks import check_top_k
from .checks import aligned
from .device import Device

Array = Any

THREADS = 256
SHARED_BYTES = 8 * 64 + 16 + 4 * (256 + 1)
"""Of the best keys, what is known of the last of them, and the counts by digit."""


def top_k(device: Device, logits: Array, *, ids: Array, values: Array) -> None:
    """Launch ``top_k``: logits [T, V] f32, ids [T, k] int32, values [T, k] f32."""
    check_top_k(logits, ids, values)
    num_rows, width = logits.shape
    if not num_rows:
        return
    entry = "top_k_aligned" if width % 4 == 0 and aligned(16, logits) else "top_k_unaligned"
    args = (logits, np.int32(width), np.int32(ids.shape[1]), ids, values)
    device.launch("top_k", entry, (num_rows,), THREADS, args, SHARED_BYTES)
