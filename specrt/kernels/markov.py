"""Launcher of ``cuda/markov.cu``: see ``specrt.reference.markov``."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..acts import Acts
from ..array_checks import check_markov
from ..state.step import StepInputs
from .checks import aligned
from .device import Device
from .linear import launch_linear
from .quantize import acts_arguments
from .weights import KernelWeight, defines_of

Array = Any

THREADS = 256
SHARED_BYTES = 8 * (THREADS // 32)


def markov(
    device: Device,
    logits: Array,
    hidden: Array,
    step: StepInputs,
    *,
    predecessor: KernelWeight,
    successor: KernelWeight,
    confidence: Array | None,
    names: Array | None,
    acts: Acts,
    ids: Array,
    confidences: Array | None,
) -> None:
    """Launch ``markov`` and ``linear`` in turns: logits [B n, Vd], hidden [B n, D], ids [B, n]."""
    outs = (acts, ids, confidences)
    check_markov(logits, hidden, step, predecessor, successor, confidence, names, *outs)
    if confidence is None or confidences is None:
        confidence = confidences = None
    (num_seqs, num_rows), size = ids.shape, logits.shape[1]
    widths = (predecessor.shape[1], hidden.shape[1])
    wide = not any(width % 4 for width in widths)
    form = "x4" if wide and aligned(16, hidden, confidence, acts.x) else "x1"
    keys, flat = successor.keys(num_seqs), logits.reshape(-1)
    books = (predecessor.tiles, np.int32(predecessor.shape[0]), np.int32(widths[0]))
    block = (keys, names, step.tokens, step.row_offsets, ids, np.int32(successor.num_tiles))
    ends = (hidden, confidence, confidences, np.int32(widths[1]), *acts_arguments(acts))
    for row in range(num_rows + 1):
        args = (*books, *block, np.int32(num_rows), np.int32(row), *ends)
        grid, defines = (num_seqs,), defines_of(predecessor)
        device.launch("markov", f"markov_{form}", grid, THREADS, args, SHARED_BYTES, defines)
        if row < num_rows:
            own = flat[row * size :]
            launch_linear(
                device, [(successor, own)], acts, num_seqs,
                add=own, keys=keys, stride=num_rows * size,
            )  # fmt: skip
