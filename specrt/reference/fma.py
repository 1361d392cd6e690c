"""The fused multiply-add that NumPy lacks."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = Any


def fma32(a: Array, b: Array, c: Array) -> Array:
    """One rounding of ``a * b + c`` in float32, as C's ``fmaf``.

    The float64 product of two float32 values is exact. The float64 sum is rounded to odd, which
    keeps enough of what was lost for the last rounding, to float32, to be the only one.

    Args:
        a, b, c: Broadcastable float32 arrays.

    Returns:
        The float32 array; infinities, NaN and signed zeros as IEEE 754 says.

    Source: Boldo and Melquiond, Emulation of FMA and correctly rounded sums, 2008.
    """
    with np.errstate(all="ignore"):
        product = np.multiply(a, b, dtype=np.float64)
        addend = np.asarray(c, dtype=np.float64)
        total = np.asarray(product + addend)
        # TwoSum: total + lost is the exact sum.
        part = total - product
        lost = (product - (total - part)) + (addend - part)
        bits = total.view(np.int64)
        inexact = np.isfinite(lost) & (lost != 0) & (bits & 1 == 0)
        away = np.where((lost > 0) == (total > 0), 1, -1)
        odd = np.where(inexact, bits + away, bits).view(np.float64)
        return odd.astype(np.float32)
