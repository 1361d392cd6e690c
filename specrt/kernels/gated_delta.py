"""Launcher of ``cuda/gated_delta.cu``: see ``specrt.reference.gated_delta``."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..array_checks import check_gated_delta
from ..errors import UnsupportedError
from ..state.recurrent import MOST_KEPT, RecurrentLayer
from ..state.step import StepInputs
from .device import Device

Array = Any

COLUMNS, THREADS = 32, 256
MOST_SHARED = 48 << 10
"""Bytes of shared memory that every GPU gives a block."""


def gated_delta(
    device: Device,
    qkv: Array,
    alpha: Array,
    beta: Array,
    layer: RecurrentLayer,
    step: StepInputs,
    *,
    a: Array,
    dt_bias: Array,
    eps: float,
    out: Array,
    states_out: Array | None = None,
) -> None:
    """Launch ``gated_delta``: qkv [T, C], alpha, beta [T, Hv], out [T, Hv * Dv] f32.

    Raises:
        UnsupportedError: a key has too many dims.
    """
    check_gated_delta(qkv, alpha, beta, layer, step, a, dt_bias, out, states_out)
    if not qkv.size:
        return
    shape = layer.shape
    shared = 4 * (shape.key_dim * (COLUMNS + 2) + THREADS + THREADS // 32)
    if shared > MOST_SHARED:
        raise UnsupportedError(
            f"gated_delta: keys of {shape.key_dim} dims take {shared} bytes of shared memory; "
            f"expected at most {MOST_SHARED}: use device='cpu'"
        )
    sizes = (
        shape.key_heads, shape.value_heads, shape.key_dim, shape.value_dim,
        layer.log_k.shape[1], MOST_KEPT,
    )  # fmt: skip
    args = (
        qkv, alpha, beta, a, dt_bias,
        layer.states, layer.log_k, layer.log_delta, layer.log_decay, out, states_out,
        step.positions, step.row_offsets, step.slots, step.live, step.pending,
        *map(np.int32, sizes), np.float32(eps), np.float32(1 / math.sqrt(shape.key_dim)),
    )  # fmt: skip
    grid = (-(-shape.value_dim // COLUMNS), shape.value_heads, len(step.slots))
    device.launch("gated_delta", "gated_delta", grid, THREADS, args, shared)
