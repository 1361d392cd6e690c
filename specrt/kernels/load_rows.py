"""Launcher of ``cuda/load_rows.cu``: see ``specrt.reference.load_rows``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..acts import Acts
from ..array_checks import check_load_rows
from ..state.step import StepInputs
from .checks import aligned
from .device import Device
from .quantize import acts_arguments

Array = Any

THREADS = 256
MAX_RINGS = 16


def load_rows(device: Device, rings: Sequence[Array], step: StepInputs, *, acts: Acts) -> None:
    """Launch ``load_rows``: at most ``MAX_RINGS`` rings [slots, R, D] f32."""
    check_load_rows(rings, step, acts, MAX_RINGS)
    if not acts.num_rows:
        return
    fours = all(ring.shape[2] % 4 == 0 for ring in rings)
    form = "x4" if fours and aligned(16, *rings, acts.x) else "x1"
    args: list[Any] = []
    for place in range(MAX_RINGS):
        ring = rings[place] if place < len(rings) else None
        args += [ring, *map(np.int32, (0, 0) if ring is None else ring.shape[1:])]
    args += [step.positions, step.row_seqs, step.slots, np.int32(acts.width)]
    args += acts_arguments(acts)
    grid = (acts.num_rows, -(-acts.width // (4 * THREADS)))
    device.launch("load_rows", f"load_rows_{form}", grid, THREADS, args)
