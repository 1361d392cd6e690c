"""Prepared rows of the host op set."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..acts import Acts
from ..errors import MismatchError

Array = Any


@dataclass(frozen=True, slots=True)
class HostInt8Rows:
    """Rows in blocks of 32, eight of them interleaved as ``_ext/host/linear.h`` says.

    How rows lie depends on how many there are, so a view of fewer rows has other contents.
    """

    q: Array  # [T * K] int8
    d: Array  # [T * K / 32] f32
    s: Array  # the same, d times the sum of q
    sums: Array  # [T * K / 16] int32, of q

    @classmethod
    def empty(cls, num_rows: int, width: int, buffer: Callable[..., Array]) -> HostInt8Rows:
        size = num_rows * width
        return cls(
            buffer((size,), np.int8),
            buffer((size // 32,), np.float32),
            buffer((size // 32,), np.float32),
            buffer((size // 16,), np.int32),
        )

    def rows(self, num_rows: int) -> HostInt8Rows:
        """The same memory: the number of rows decides how they lie in it."""
        return self


def check_exact(acts: Acts, num_rows: int) -> None:
    """Raise ``MismatchError`` unless the acts are of just that many rows, as they were prepared."""
    if acts.num_rows != num_rows:
        raise MismatchError(
            f"acts of {acts.num_rows} rows for an op over {num_rows}; expected as many, since rows "
            f"lie by their number: take acts.rows({num_rows}) before they are prepared"
        )
