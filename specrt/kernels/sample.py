"""Launcher of ``cuda/sample.cu``, and what it reads: see ``specrt.reference.sampling``."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..array_checks import check
from ..errors import MismatchError
from ..options import SamplingParams
from ..state.draw import EDIT, Draw
from ..state.step import StepInputs
from .checks import aligned
from .device import Device

Array = Any

THREADS = 512
SHARED_BYTES = 8 * (THREADS + THREADS // 32 + 2)
LEAST = -29.0
"""The logit below the largest, over temperature, whose weight is 0."""

DRAW = np.dtype(
    [
        *(("seed", "<u8"), ("top_p", "<f8"), ("scale", "<f4"), ("least", "<f4")),
        *(("repetition", "<f4"), ("presence", "<f4"), ("frequency", "<f4"), ("top_k", "<i4")),
        *(("min_total", "<i4"), ("first_edit", "<i4"), ("num_edits", "<i4"), ("draws", "<i4")),
        ("unused", "<i4", 2),
    ]
)
"""How a sequence draws: ``Draw`` of ``draw.cuh``."""

DRAW_INTS, EDIT_INTS = DRAW.itemsize // 4, EDIT.itemsize // 4


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
    check("sample: logits", logits, np.float32, (num_rows, size))
    check("sample: draws", draws, np.int32, (len(step.row_offsets) - 1, DRAW_INTS))
    check("sample: edits", edits, np.int32, (len(edits), EDIT_INTS))
    check("sample: ids", ids, np.int32, (num_rows,))
    if len(step.positions) < num_rows:
        raise MismatchError(f"sample: {num_rows} rows; the step holds {len(step.positions)}")
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
        first_edit = num_seqs * DRAW_INTS
        block = buffer((first_edit + num_seqs * max_edits * EDIT_INTS,), np.int32)
        self._draws = block[:first_edit].reshape(-1, DRAW_INTS)
        self._edits = block[first_edit:].reshape(-1, EDIT_INTS)
        self._send, self._to = sender(block), to

    def publish(self, draws: Sequence[Draw | None]) -> None:
        """Send what the windows of the next run draw with."""
        self._send(packed(draws, len(self._draws)))

    def sample(self, logits: Array, step: Any, *, ids: Array) -> None:
        """Draw where a window does: see ``sample``."""
        sample(self._to(), logits, step.on_device, self._draws, self._edits, ids=ids)


def packed(draws: Sequence[Draw | None], num_seqs: int) -> np.ndarray:
    """A ``DRAW`` per sequence and all ``EDIT``s behind them, as int32."""
    heads, edits, place = np.zeros(num_seqs, DRAW), [], 0
    for number, draw in enumerate(draws):
        if draw is not None:
            heads[number] = _head(draw, place)
            edits.append(draw.edits)
            place += len(draw.edits)
    return np.concatenate([part.view(np.int32) for part in (heads, *edits)])


def _head(draw: Draw, first_edit: int) -> tuple[Any, ...]:
    params: SamplingParams = draw.params
    most = float(np.finfo(np.float32).max)
    return (
        *(draw.seed, params.top_p),
        min(1 / params.temperature, most) if params.temperature else 0,
        max(LEAST, math.log(params.min_p)) if params.min_p > 0 else LEAST,
        *(params.repetition_penalty, params.presence_penalty, params.frequency_penalty),
        *(params.top_k, min(draw.min_total, 2**31 - 1), first_edit, len(draw.edits), 1, (0, 0)),
    )
