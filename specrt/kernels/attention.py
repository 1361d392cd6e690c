"""Launcher of ``cuda/attention.cu``: see ``specrt.reference.attention``."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..array_checks import check, check_attention
from ..errors import MismatchError
from ..ops import PAGE
from ..state.step import StepInputs
from .checks import aligned, step_arguments
from .device import Device
from .kv import KernelKVLayer, kv_defines

Array = Any

WARPS = 4
SLOT_BYTES = 3 * PAGE * (128 + 16) + 3 * 4 * 2 * PAGE
MAX_SHARED = 48 << 10
MOST_SPANS = 129
"""A row sees 128 spans of chunks at most, or one more where the first is cut."""
SPLIT_ROWS = 16
"""Prefill has rows enough to fill a device, and the results of its single spans fit nowhere."""
SPLIT_BLOCKS = 1024
"""Few rows are cut along the keys into about so many blocks: a guess, not tuned on a GPU."""
SPLIT_FLOATS = 32 << 20
"""At most so many are kept of single spans."""


def attention(
    device: Device,
    q: Array,
    cache: KernelKVLayer,
    step: StepInputs,
    *,
    scale: float,
    window: int,
    out: Array,
    softcap: float = 0.0,
    ahead: bool = False,
    sinks: Array | None = None,
    scratch: Array | None = None,
) -> None:
    """Launch ``attention``: q and out [T, H * Dh] f32, sinks [H] f32.

    Args:
        scratch: at least ``scratch_floats`` f32 that nobody uses meanwhile: few rows then read the
            keys in parallel. The results are the same bits without.
    """
    check_attention(q, cache, step, window, softcap, ahead, sinks, out)
    if not aligned(16, q, out, scratch):
        raise MismatchError("attention: arrays start at no multiple of 16 bytes; use ops.buffer")
    if not len(q):
        return
    num_rows, num_heads = len(q), q.shape[1] // cache.head_dim
    per_head = num_heads // cache.num_heads
    max_spans = _max_spans(step, window, len(step.positions) - 1 if ahead else 0)
    tile = min(_most_queries(cache), -(-num_rows * per_head // WARPS) * WARPS)
    num_runs = min(len(step.row_offsets) - 1, -(-tile // per_head), num_rows)
    grid = (-(-num_rows * per_head // tile), cache.num_heads, num_runs)
    size = _partial_floats(num_rows, num_heads, cache.head_dim, max_spans)
    num_groups = 1
    if scratch is not None and size:
        check("attention: scratch", scratch, np.float32, (max(size, scratch.size),))
        num_groups = max(1, min(SPLIT_BLOCKS // math.prod(grid), max_spans))
    partials = scratch if num_groups > 1 else None
    sizes = (num_rows, num_heads, cache.num_heads, cache.head_dim, _row_bytes(cache), window)
    sight = (step.lowest, step.row_offsets if ahead else None)
    args = (
        *(q, out, partials, cache.k, cache.v, cache.k_scale, cache.v_scale, sinks, *sight),
        *map(np.int32, sizes),
        np.float32(scale),
        np.float32(softcap),
        *map(np.int32, (tile, num_groups, num_runs, max_spans)),
        *step_arguments(step, cache),
    )
    grid = (*grid[:2], num_groups * num_runs)
    shared_bytes = SLOT_BYTES + tile * _query_bytes(cache)
    types = kv_defines(cache)
    device.launch("attention", "attention_pages", grid, 32 * WARPS, args, shared_bytes, types)
    if partials is not None:
        arrays = (partials, out, sinks, step.positions, step.row_seqs, *sight)
        _merge(device, arrays, (num_rows, num_heads, cache.head_dim, window, max_spans), types)


def _merge(
    device: Device,
    arrays: tuple[Array, ...],
    sizes: tuple[int, int, int, int, int],
    types: tuple[str, ...],
) -> None:
    num_rows, num_heads, dims, *_ = sizes
    grid = (-(-num_rows * num_heads // WARPS), -(-dims // 128))
    entry = f"attention_merge_{'x4' if dims % 4 == 0 else 'x1'}"
    args = (*arrays, *map(np.int32, sizes))
    device.launch("attention", entry, grid, 32 * WARPS, args, 0, types)


def scratch_floats(num_rows: int, width: int, cache: KernelKVLayer, step: StepInputs) -> int:
    """The f32 that ``attention`` of so many rows can use as scratch, 0 if it takes none.

    Args:
        width: of q, H * Dh.
    """
    dims = cache.head_dim
    return _partial_floats(num_rows, width // dims, dims, _max_spans(step, 0, 0))


def most_floats(width: int, cache: KernelKVLayer, step: StepInputs) -> int:
    """The most that ``scratch_floats`` gives for any number of rows."""
    return max(scratch_floats(n, width, cache, step) for n in range(1, SPLIT_ROWS + 1))


def _partial_floats(num_rows: int, num_heads: int, dims: int, max_spans: int) -> int:
    floats = num_rows * num_heads * max_spans * (dims + 2)
    return floats if num_rows <= SPLIT_ROWS and floats <= SPLIT_FLOATS else 0


def _max_spans(step: StepInputs, window: int, num_rows_ahead: int) -> int:
    """Spans of which a row may see something."""
    pages = int(step.page_table.shape[1])
    seen = window + num_rows_ahead
    return min(pages, (seen - 2) // PAGE + 2 if window else pages, MOST_SPANS)


def _row_bytes(cache: KernelKVLayer) -> int:
    return int(cache.k.shape[-1]) * int(cache.k.itemsize)


def _query_bytes(cache: KernelKVLayer) -> int:
    """Of shared memory: its dims, padded as the keys' are, weights, and sums."""
    return 4 * (int(cache.k.shape[-1]) + PAGE + cache.head_dim)


def _most_queries(cache: KernelKVLayer) -> int:
    """Of a block: four or fewer a warp."""
    most = (MAX_SHARED - SLOT_BYTES) // _query_bytes(cache)
    return next(WARPS * n for n in (4, 2, 1) if WARPS * n <= most)
