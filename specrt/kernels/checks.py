"""Where arrays of NumPy and of CuPy lie, and how far a grid goes."""

from __future__ import annotations

from typing import Any

MAX_GRID_Y = 65535


def aligned(num_bytes: int, *arrays: Any) -> bool:
    """Whether all addresses are multiples of that; None counts as aligned."""
    return all(address_of(array) % num_bytes == 0 for array in arrays if array is not None)


def address_of(array: Any) -> int:
    """Where an array of NumPy or of CuPy starts."""
    return array.ctypes.data if hasattr(array, "ctypes") else array.data.ptr
