"""The only tolerances of the test suite.

Error bounds of float results are those of a plain float32 computation, doubled, plus a floor.
"""

from __future__ import annotations

import numpy as np

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
