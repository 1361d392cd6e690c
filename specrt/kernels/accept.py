"""Launcher of ``cuda/accept.cu``: see ``specrt.reference.accept``."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..array_checks import check_accept
from ..state.step import StepInputs
from .device import Device

Array = Any

THREADS = 256
WINDOWS = THREADS // 32
"""Of a block: a warp has one."""


def accept(device: Device, ids: Array, step: StepInputs, *, out: Array) -> None:
    """Launch ``accept``: ids [T] int32, out [B, 3] int32."""
    check_accept(ids, step, out)
    num_seqs = len(out)
    args = (ids, step.tokens, step.positions, step.row_offsets, out, np.int32(num_seqs))
    device.launch("accept", "accept", (-(-num_seqs // WINDOWS),), THREADS, args)
