"""The only tolerances: how far a float result may lie from what is exact."""

from __future__ import annotations

import numpy as np

FLOOR = 1e-6  # of the largest exact value, for float32 results that a baseline hits by luck


def assert_accurate(got: np.ndarray, baseline: np.ndarray, exact: np.ndarray) -> None:
    """The largest error is at most twice that of plain float32 code, plus a floor.

    Args:
        got: what is tested, float32.
        baseline: plain float32 code's result.
        exact: a float64 oracle's.
    """
    assert exact.dtype == np.float64 and got.dtype == baseline.dtype == np.float32
    assert got.shape == exact.shape and np.isfinite(exact).all()
    error, allowed = (np.abs(x - exact).max() for x in (got, baseline))
    limit = 2 * allowed + FLOOR * np.abs(exact).max()
    assert error <= limit, f"error {error:.3g}, baseline {allowed:.3g}, limit {limit:.3g}"
