"""Launcher of ``cuda/mtp_project.cu``: see ``specrt.reference.mtp_project``."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..acts import Acts
from ..array_checks import check_mtp_project
from ..state.step import StepInputs
from .checks import aligned
from .device import Device
from .linear import linear
from .quantize import acts_arguments
from .weights import KernelWeight, defines_of

Array = Any

THREADS = 256
SHARED_BYTES = 4 * 2 * (THREADS // 32)


def mtp_project(
    device: Device,
    embedding: KernelWeight,
    hidden: Array,
    projection: KernelWeight,
    step: StepInputs,
    *,
    embedding_norm: Array,
    hidden_norm: Array,
    scale: float,
    eps: float,
    acts: Acts,
    out: Array,
) -> None:
    """Launch ``mtp_project`` and ``linear``: hidden [slots, R, D], norms [D], out [T, N], f32."""
    check_mtp_project(embedding, hidden, step, embedding_norm, hidden_norm, acts, out)
    acts.check_readable(projection, len(out))  # so some form of it is there to write
    if not len(out):
        return
    (num_rows, width), norms = embedding.shape, (embedding_norm, hidden_norm)
    form = "x4" if width % 4 == 0 and aligned(16, hidden, *norms, acts.x) else "x1"
    rows = (step.tokens, step.positions, step.row_seqs, step.slots)
    args = (
        *(embedding.tiles, np.int32(num_rows), np.float32(scale), *rows, hidden, *norms),
        *(np.int32(hidden.shape[1]), np.int32(width), np.float32(eps), *acts_arguments(acts)),
    )
    grid, defines = (len(out),), defines_of(embedding)
    device.launch("mtp_project", f"mtp_project_{form}", grid, THREADS, args, SHARED_BYTES, defines)
    linear(device, [(projection, out)], acts)
