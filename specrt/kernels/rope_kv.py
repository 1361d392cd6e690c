"""Launcher of ``cuda/rope_kv.cu``: see ``specrt.reference.rope_kv``."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..array_checks import check_rope_kv
from ..errors import MismatchError
from ..ops import Rope
from ..state.step import StepInputs
from .checks import MAX_GRID_Y, aligned, step_arguments
from .device import Device
from .kv import KernelKVLayer, kv_defines

Array = Any

WARPS = 4


def rope_kv(
    device: Device,
    q: Array,
    k: Array,
    v: Array,
    cache: KernelKVLayer,
    step: StepInputs,
    *,
    rope: Rope,
    q_norm: Array | None = None,
    k_norm: Array | None = None,
    eps: float = 0.0,
) -> None:
    """Launch ``rope_kv``: q [T, H * Dh], k and v [T, Hkv * Dh], norms [Dh], all f32."""
    check_rope_kv(q, k, v, cache, step, rope, q_norm, k_norm)
    if len(q) > MAX_GRID_Y:
        raise MismatchError(f"rope_kv: {len(q)} rows; expected at most {MAX_GRID_Y}")
    if not len(q):
        return
    dims, num_pairs = cache.head_dim, rope.table.shape[1]
    num_heads = q.shape[1] // dims
    wide = dims % 4 == 0 and num_pairs % 2 == 0
    wide = wide and aligned(16, q, k, v, q_norm, k_norm, rope.table)
    sizes = (np.int32(num_heads), np.int32(cache.num_heads), np.int32(dims))
    turning = (rope.table, np.int32(num_pairs), np.int32(rope.pairing == "interleaved"))
    row_bytes = np.int32(cache.k.shape[-1] * cache.k.itemsize)
    stored = (cache.k, cache.v, cache.k_scale, cache.v_scale, row_bytes)
    args = (
        q,
        k,
        v,
        *sizes,
        q_norm,
        k_norm,
        np.float32(eps),
        *turning,
        *stored,
        *step_arguments(step, cache),
    )
    shared_floats = -(-2 * num_pairs // 4) * 4 + WARPS * -(-dims // 4) * 4
    grid = (-(-(num_heads + 2 * cache.num_heads) // WARPS), len(q))
    entry = f"rope_kv_{'x4' if wide else 'x1'}"
    device.launch("rope_kv", entry, grid, 32 * WARPS, args, 4 * shared_floats, kv_defines(cache))
