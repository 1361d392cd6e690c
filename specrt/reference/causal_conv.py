"""A causal convolution over time, channel by channel."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from ..ops import StepInputs
from ..state.recurrent import MOST_KEPT, RecurrentLayer
from .fma import fma32

Array = Any


def causal_conv(
    u: Array, weight: Array, layer: RecurrentLayer, step: StepInputs, *, out: Array
) -> None:
    """Write ``silu(sum_j weight[c, j] u[p - K + 1 + j, c])`` for a row at position p.

    The sum is a chain of fmas from zero, ascending in j; rows before position 0 are zero. The
    ``pending`` rows before the step's first one of a sequence are in the layer's log, and those
    before them in tail ``live``. The other tail gets the rows before the pending ones' end, and the
    log the step's own; of more than W rows the other tail gets the last.

    Args:
        u: [T, C] f32.
        weight: [C, K] f32.
        layer: ``tails`` and ``log_u`` are read and written.
        step: ``positions`` and ``row_offsets`` of the T rows; ``slots``, ``live`` and ``pending``
            of the sequences.
        out: [T, C] f32; it may be u.
    """
    for begin, end, rows in extended(u, layer, step):
        total = np.zeros((end - begin, u.shape[1]), np.float32)
        for j in range(weight.shape[1]):
            total = fma32(weight[:, j], rows[j : j + end - begin], total)
        with np.errstate(over="ignore"):
            out[begin:end] = total / (np.float32(1) + np.exp(-total))


def extended(u: Array, layer: RecurrentLayer, step: StepInputs) -> Iterator[tuple[int, int, Array]]:
    """First row and end of each sequence, and its rows behind the K - 1 before them.

    What later steps will read of them is kept.
    """
    before = layer.shape.conv_kernel - 1
    for number, begin, end, slot, start in sequences(step, len(u)):
        live, pending = int(step.live[number]), int(step.pending[number])
        log, first = layer.log_u[slot], start - pending
        tail = layer.tails[slot, live].copy()
        tail[: max(0, before - first)] = 0
        logged = log[np.arange(first, start) % len(log)]
        rows = np.concatenate([tail, logged])[pending:]
        rows = np.concatenate([rows, u[begin:end]])
        few = end - begin <= MOST_KEPT
        layer.tails[slot, 1 - live] = rows[:before] if few else rows[len(rows) - before :]
        if few:
            log[np.arange(start, start + end - begin) % len(log)] = u[begin:end]
        yield begin, end, rows


def sequences(step: StepInputs, num_rows: int) -> Iterator[tuple[int, int, int, int, int]]:
    """Number, first row, end, slot and first position of each sequence with rows in the step."""
    offsets = step.row_offsets.tolist()
    for number, (begin, end) in enumerate(pairwise(offsets)):
        if begin < end <= num_rows:
            yield number, begin, end, int(step.slots[number]), int(step.positions[begin])
