"""Where arrays of NumPy and of CuPy lie, how far a grid goes, and what kernels read of a step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from ..state.step import StepInputs
    from .kv import KernelKVLayer

MAX_GRID_Y = 65535
ITEM_BYTES = (16, 4, 1)


def aligned(num_bytes: int, *arrays: Any) -> bool:
    """Whether all addresses are multiples of that; None counts as aligned."""
    return all(address_of(array) % num_bytes == 0 for array in arrays if array is not None)


def items_of(x: Any, out: Any, threads: int) -> tuple[int, int, int]:
    """How rows of x are moved to rows of out.

    Returns:
        Bytes of an item: the most that fit all addresses and strides; items of a row; and in how
        many parts blocks of so many threads move a row.
    """
    row_bytes = x.shape[1] * x.itemsize
    sizes = (row_bytes, x.strides[0], out.strides[0])
    item = next(n for n in ITEM_BYTES if aligned(n, x, out) and not any(size % n for size in sizes))
    num_items = row_bytes // item
    return item, num_items, min(-(-num_items // threads), MAX_GRID_Y)


def address_of(array: Any) -> int:
    """Where an array of NumPy or of CuPy starts."""
    return array.ctypes.data if hasattr(array, "ctypes") else array.data.ptr


def step_arguments(step: StepInputs, cache: KernelKVLayer) -> tuple[Any, ...]:
    """What the kernels over ``kv.cuh`` read of a step, for a layer of pages or of rings."""
    table = step.ring_table if cache.ring_pages else step.page_table
    sizes = (np.int32(table.shape[1]), np.int32(cache.ring_pages))
    return (step.positions, step.row_seqs, table, *sizes)
