"""How a target draws the tokens of a window itself, where the logits are."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from specrt.options import SamplingParams

EDIT = np.dtype([("id", "<i4"), ("bias", "<f4"), ("flags", "<i4"), ("count", "<i4")])
"""An id whose logit is changed, its bias, and how often the output has it."""

DRAW = np.dtype(
    [
        *(("seed", "<u8"), ("top_p", "<f8"), ("scale", "<f4"), ("least", "<f4")),
        *(("repetition", "<f4"), ("presence", "<f4"), ("frequency", "<f4"), ("top_k", "<i4")),
        *(("min_total", "<i4"), ("first_edit", "<i4"), ("num_edits", "<i4"), ("draws", "<i4")),
        ("unused", "<i4", 2),
    ]
)
"""How a sequence draws, as kernels read it: ``Draw`` of ``draw.cuh``, ``draw`` of ``sample.h``."""

DRAW_INTS, EDIT_INTS = DRAW.itemsize // 4, EDIT.itemsize // 4

LEAST = -29.0
"""The logit below the largest, over temperature, whose weight is 0."""

INT_MAX = 2**31 - 1

SEEN, ENDS = 1, 2
"""Flags of an edit: the id is in the history; it is not drawn before ``min_total``."""


@dataclass(frozen=True, slots=True, eq=False)
class Draw:
    """How one window's tokens are drawn.

    Args:
        params: the options.
        seed: the Philox key; ``params.seed`` is not looked at.
        min_total: ids, prompt included, before which no ``ENDS`` is drawn.
        edits: [n] ``EDIT``, no id twice. The history ends with the window's first token: the draft
            tokens before a row are counted where it is drawn, each of them has an edit for that.
    """

    params: SamplingParams
    seed: int
    min_total: int
    edits: np.ndarray


class DrawBlock:
    """Where a step's draws lie for kernels: one int32 block of a device.

    Args:
        num_seqs: the most windows.
        max_edits: the most edits of a window.
        buffer: makes an array of the device.

    Attributes:
        block: all of it.
        draws: [num_seqs, 16] int32 of it, a ``DRAW`` per window; zeros for one that does not draw.
        edits: [num_seqs * max_edits, 4] int32 of it, an ``EDIT`` each.
    """

    def __init__(
        self,
        num_seqs: int,
        max_edits: int,
        buffer: Callable[[tuple[int, ...], Any], Any],
    ) -> None:
        first_edit = num_seqs * DRAW_INTS
        self.block = buffer((first_edit + num_seqs * max_edits * EDIT_INTS,), np.int32)
        self.draws = self.block[:first_edit].reshape(-1, DRAW_INTS)
        self.edits = self.block[first_edit:].reshape(-1, EDIT_INTS)


def packed(draws: Sequence[Draw | None], num_seqs: int) -> np.ndarray:
    """The beginning of a block: a ``DRAW`` per sequence and all ``EDIT``s behind them, as int32."""
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
        *(min(params.top_k, INT_MAX), min(draw.min_total, INT_MAX), first_edit),
        *(len(draw.edits), 1, (0, 0)),
    )
