"""What a recurrent layer keeps of a sequence: two states, and a log of rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from specrt.options import MAX_DRAFT

Array = Any

MOST_KEPT = MAX_DRAFT + 1
"""W, the rows of the longest window; of a longer forward, a prefill chunk, all are kept or none."""

MAX_CONV = 64
"""The longest convolution."""


@dataclass(frozen=True, slots=True)
class RecurrentShape:
    """Heads of a gated delta layer.

    Args:
        key_heads: Hk, of keys and queries.
        value_heads: Hv, a multiple of Hk.
        key_dim: Dk.
        value_dim: Dv.
        conv_kernel: rows that a row of the convolution reads, itself included.
    """

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    conv_kernel: int

    @property
    def channels(self) -> int:
        """C, of a row of the convolution: q, k and v."""
        return 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim


class RecurrentLayer:
    """One layer's arrays, a slot per sequence.

    A step reads state ``live``, applies the ``pending`` rows before its first one from the logs,
    and leaves the result in the other state: what it wrote counts once the cursor says so.

    Args:
        shape: of its heads.
        num_slots: sequences.
        buffer: makes an array from shape and dtype; the op set's.

    Attributes:
        states: [slots, 2, Hv, Dk, Dv] f32.
        tails: [slots, 2, K - 1, C] f32, the convolution's inputs before the row that a state waits
            for; before position 0 they count as zero.
        log_u, log_k, log_delta, log_decay: [slots, 2 W, C | Hk * Dk | Hv * Dv | Hv] f32, of the row
            at position % 2 W: the convolution's input, and what makes of a state
            ``decay M + k delta^T``.
    """

    def __init__(
        self,
        shape: RecurrentShape,
        num_slots: int,
        buffer: Callable[[tuple[int, ...], Any], Array] = np.zeros,
    ) -> None:
        self.shape = shape
        hk, hv, dk, dv = shape.key_heads, shape.value_heads, shape.key_dim, shape.value_dim
        self.states = buffer((num_slots, 2, hv, dk, dv), np.float32)
        self.tails = buffer((num_slots, 2, shape.conv_kernel - 1, shape.channels), np.float32)
        log = (num_slots, 2 * MOST_KEPT)
        self.log_u = buffer((*log, shape.channels), np.float32)
        self.log_k = buffer((*log, hk * dk), np.float32)
        self.log_delta = buffer((*log, hv * dv), np.float32)
        self.log_decay = buffer((*log, hv), np.float32)
