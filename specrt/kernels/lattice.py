"""Launcher of ``cuda/lattice.cu``: see ``specrt.reference.lattice``."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..array_checks import check_lattice
from ..state.step import StepInputs
from .checks import aligned
from .device import Device
from .weights import KernelWeight, defines_of

Array = Any

SIDE = 16
THREADS = SIDE * SIDE
SHARED_BYTES = 4 * 2 * SIDE * (4 * SIDE + 4)


def lattice(
    device: Device,
    ids: Array,
    logits: Array,
    gates: Array,
    step: StepInputs,
    *,
    predecessor: KernelWeight,
    successor: KernelWeight,
    names: Array | None,
    scores: Array,
) -> None:
    """Launch ``lattice``: ids, logits [B n, k], gates [B n, R], scores [B, k + k k (n - 1)]."""
    check_lattice(ids, logits, gates, step, predecessor, successor, names, scores)
    width, k = gates.shape[1], ids.shape[1]
    form = "x4" if width % 4 == 0 and aligned(16, gates) else "x1"
    sizes = map(np.int32, (predecessor.shape[0], successor.shape[0], width))
    rows = (ids, logits, gates, names, step.tokens, step.row_offsets, scores)
    ends = map(np.int32, (len(ids) // len(scores), k))
    args = (predecessor.tiles, successor.tiles, *sizes, *rows, *ends)
    grid = (len(ids), (-(-k // SIDE)) ** 2)
    defines = defines_of(predecessor)
    if successor.type_name != predecessor.type_name:
        defines += (f"SUCCESSOR_TYPE {successor.type_name}",)
    device.launch("lattice", f"lattice_{form}", grid, THREADS, args, SHARED_BYTES, defines)
