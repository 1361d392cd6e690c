"""Launcher of ``cuda/sample.cu``, and what it reads: see ``specrt.reference.sampling``."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from ..array_checks import check
from ..errors import MismatchError
from ..options import SamplingParams
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
        *(("min_total", "<i4"), ("first_edit", "<i4"), ("num_edits", "<i4"), ("logprobs", "<i4")),
        ("unused", "<i4", 2),
    ]
)
"""How one sequence draws: ``Draw`` of ``sample.cu``; on the device 16 int32."""

EDIT = np.dtype([("id", "<i4"), ("bias", "<f4"), ("flags", "<i4"), ("count", "<i4")])
"""An id whose logit is changed, and how often the output has it; on the device 4 int32."""

SEEN, ENDS = 1, 2
"""Flags of an edit: the id is in the history; it is not drawn before ``min_total``."""

FIELDS = 5
"""Of a drawn row: the token; for log probabilities the largest raw logit, the words of the weights'
sum, and the token's own raw logit."""


def sample(
    device: Device,
    logits: Array,
    saved: Array,
    step: StepInputs,
    draws: Array,
    edits: Array,
    *,
    out: Array,
) -> None:
    """Draw a token from each row of logits, for the position behind the row's.

    Args:
        logits: [T, V] float32; the same after the launch as before.
        saved: [T, E] float32, scratch; E is the most edits of a sequence.
        step: the windows that the rows are of. A row's history ends with its window's draft tokens
            up to its own: each of them has an edit if penalties are asked for.
        draws: [B, 16] int32, a ``DRAW`` per sequence.
        edits: [n, 4] int32, an ``EDIT`` each; no id twice in those of a sequence.
        out: [T, 5] int32.
    """
    num_rows, size = logits.shape
    check("sample: logits", logits, np.float32, (num_rows, size))
    check("sample: saved", saved, np.float32, (num_rows, saved.shape[-1]))
    check("sample: draws", draws, np.int32, (len(step.row_offsets) - 1, DRAW.itemsize // 4))
    check("sample: edits", edits, np.int32, (len(edits), EDIT.itemsize // 4))
    check("sample: out", out, np.int32, (num_rows, FIELDS))
    if len(step.positions) < num_rows:
        raise MismatchError(f"sample: {num_rows} rows; the step holds {len(step.positions)}")
    if not aligned(16, draws, edits):
        raise MismatchError("sample: draws and edits start at no multiple of 16 bytes")
    if not logits.size:
        return
    inputs = (step.tokens, step.positions, step.row_seqs, step.row_offsets)
    sizes = np.int32(size), np.int32(saved.shape[1])
    form = "aligned" if size % 4 == 0 and aligned(16, logits) else "any"
    args = (logits, saved, draws, edits, *inputs, out, *sizes)
    device.launch("sample", f"sample_{form}", (num_rows,), THREADS, args, SHARED_BYTES)


def draw_of(
    params: SamplingParams, seed: int, min_total: int = 0, first_edit: int = 0, num_edits: int = 0
) -> np.ndarray:
    """How a sequence draws, as a ``DRAW``.

    Args:
        params: its options.
        seed: the Philox key.
        min_total: ids, prompt included, before which it does not end.
        first_edit, num_edits: which edits are its own.
    """
    most = float(np.finfo(np.float32).max)
    draw = np.zeros((), DRAW)
    draw["seed"], draw["top_p"], draw["top_k"] = seed, params.top_p, params.top_k
    draw["scale"] = min(1 / params.temperature, most) if params.temperature else 0
    draw["least"] = max(LEAST, math.log(params.min_p)) if params.min_p > 0 else LEAST
    draw["repetition"] = params.repetition_penalty
    draw["presence"] = params.presence_penalty
    draw["frequency"] = params.frequency_penalty
    draw["min_total"], draw["first_edit"], draw["num_edits"] = min_total, first_edit, num_edits
    draw["logprobs"] = params.logprobs is not None
    return draw


def edits_of(
    params: SamplingParams,
    vocab_size: int,
    history: np.ndarray,
    prompt_len: int,
    draft_tokens: Iterable[int] = (),
    end_ids: Iterable[int] = (),
) -> np.ndarray:
    """The logits of one sequence that options and history change, each once, as ``EDIT``s.

    Args:
        params: its options.
        vocab_size: V; other ids have no logit.
        history: all ids up to and with the window's first.
        prompt_len: how many of them are the prompt.
        draft_tokens: d1 .. dK, which the rows count themselves.
        end_ids: what is not drawn before ``min_total``; none where it does not matter any more.
    """
    counted = np.asarray(history if params.penalises else [], np.int32)
    drafted = [*draft_tokens] if params.penalises else []
    ends = [i for i in end_ids if 0 <= i < vocab_size]
    biases = params.logit_bias or {}
    ids = np.unique(np.concatenate([counted, np.array([*drafted, *ends, *biases], np.int32)]))
    edits = np.zeros(len(ids), EDIT)
    edits["id"] = ids
    with np.errstate(over="ignore"):  # a bias may be larger than float32 is
        edits["bias"][np.searchsorted(ids, [*biases])] = np.array([*biases.values()]).astype("f4")
    edits["flags"][np.searchsorted(ids, counted)] |= SEEN
    edits["flags"][np.searchsorted(ids, ends)] |= ENDS
    np.add.at(edits["count"], np.searchsorted(ids, counted[prompt_len:]), 1)
    return edits


def logprob_of(drawn: np.ndarray) -> float:
    """The log probability of a drawn row's token, ``x - log sum exp x`` over the raw logits.

    The sum is of whole numbers, so it is the same in any order; against float64 it is off by less
    than 2^-21, the error of a float32 exp.
    """
    largest, own = (float(drawn[place : place + 1].view(np.float32)[0]) for place in (1, 4))
    if math.isnan(own) or own == -math.inf:
        return -math.inf
    total = int(drawn[2:4].view(np.uint64)[0]) * 2.0**-40
    return min(own, float(np.finfo(np.float32).max)) - (largest + math.log(total))
