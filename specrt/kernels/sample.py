"""Launcher of ``cuda/sample.cu``, and what it reads: see ``specrt.reference.sampling``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..array_checks import check_sample
from ..errors import MismatchError
from ..state.draw import Draw, DrawBlock, packed
from ..state.step import StepInputs
from .checks import aligned
from .device import Device

Array = Any

THREADS = 512
SHARED_BYTES = 8 * (THREADS + THREADS // 32 + 2)


def sample(
    device: Device, logits: Array, step: StepInputs, draws: Array, edits: Array, *, ids: Array
) -> None:
    """Draw a token from each row of logits, for the position behind the row's.

    Args:
        logits: [T, V] float32; with what edits change after the launch.
        step: the windows that the rows are of. A row's history ends with its window's draft tokens
            up to its own: each of them has an edit if penalties are asked for.
        draws: [B, 16] int32, a ``DRAW`` per sequence; all zeros for one that does not draw.
        edits: [n, 4] int32, an ``EDIT`` each.
        ids: [T] int32, changed for the rows of sequences that draw.
    """
    num_rows, size = logits.shape
    check_sample(logits, step, draws, edits, ids)
    if not aligned(16, draws, edits):
        raise MismatchError("sample: draws and edits start at no multiple of 16 bytes")
    if not logits.size:
        return
    inputs = (step.tokens, step.positions, step.row_seqs, step.row_offsets)
    form = "aligned" if size % 4 == 0 and aligned(16, logits) else "any"
    args = (logits, draws, edits, *inputs, ids, np.int32(size))
    device.launch("sample", f"sample_{form}", (num_rows,), THREADS, args, SHARED_BYTES)


class KernelDraws:
    """How the windows of a step draw; ``publish`` sends it to the device in one copy.

    Args:
        num_seqs: the most windows.
        max_edits: the most edits of a window.
        buffer: makes an array of the device.
        sender: what copies values into an array of the device.
        to: what launchers launch on.
    """

    def __init__(
        self,
        num_seqs: int,
        max_edits: int,
        buffer: Callable[[tuple[int, ...], Any], Array],
        sender: Callable[[Array], Callable[[np.ndarray], None]],
        to: Callable[[], Device],
    ) -> None:
        self._on_device = DrawBlock(num_seqs, max_edits, buffer)
        self._send, self._to = sender(self._on_device.block), to

    def publish(self, draws: Sequence[Draw | None]) -> None:
        """Send what the windows of the next run draw with."""
        self._send(packed(draws, len(self._on_device.draws)))

    def sample(self, logits: Array, step: Any, *, ids: Array) -> None:
        """Draw where a window does: see ``sample``."""
        arrays = self._on_device
        sample(self._to(), logits, step.on_device, arrays.draws, arrays.edits, ids=ids)
