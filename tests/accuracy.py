"""What the results of models and ops may differ by.

Error bounds of float results are those of a plain float32 computation, doubled, plus a floor. Where
a test compares a formula with its own float64 form, the bound of rounding stands beside it.
"""

from __future__ import annotations

import numpy as np

FLOOR = 1e-6
"""Of the largest exact value, for float32 results that a baseline hits by luck."""

GOLDEN_STD_SHARE = 2e-3
"""Logits of float models: largest difference, as a share of the logits' standard deviation."""

GOLDEN_NMSE = 2e-3
"""Logits of quantised models: normalised mean square error."""

PERPLEXITY_SHARE = 0.005
"""Relative difference of a perplexity."""


def assert_golden_float(got: np.ndarray, expected: np.ndarray) -> None:
    """Float logits: max |got - expected| is a small share of their spread."""
    worst = np.abs(got.astype(np.float64) - expected).max()
    assert worst <= GOLDEN_STD_SHARE * expected.std(), (worst, expected.std())


def assert_golden_quantised(got: np.ndarray, expected: np.ndarray) -> None:
    """Quantised logits: ||got - expected||^2 is a small share of ||expected||^2."""
    error = np.square(got.astype(np.float64) - expected).sum()
    nmse = error / np.square(expected.astype(np.float64)).sum()
    assert nmse <= GOLDEN_NMSE, nmse


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
