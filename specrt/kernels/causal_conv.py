"""Launcher of ``cuda/causal_conv.cu``: see ``specrt.reference.causal_conv``."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..array_checks import check_causal_conv
from ..state.recurrent import MOST_KEPT, RecurrentLayer
from ..state.step import StepInputs
from .device import Device

Array = Any

THREADS = 256


def causal_conv(
    device: Device,
    u: Array,
    weight: Array,
    layer: RecurrentLayer,
    step: StepInputs,
    *,
    out: Array,
) -> None:
    """Launch ``causal_conv``: u and out [T, C] f32, weight [C, K] f32."""
    check_causal_conv(u, weight, layer, step, out)
    if not u.size:
        return
    sizes = (u.shape[1], weight.shape[1], layer.log_u.shape[1], MOST_KEPT)
    rows = (step.positions, step.row_offsets, step.slots, step.live, step.pending)
    args = (u, weight, layer.tails, layer.log_u, out, *rows, *map(np.int32, sizes))
    grid = (-(-u.shape[1] // THREADS), len(step.slots))
    device.launch("causal_conv", "causal_conv", grid, THREADS, args)
