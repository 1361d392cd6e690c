"""Attention over cached keys and values."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ops import PAGE, StepInputs
from .kv import ReferenceKVLayer, decode, page_of

Array = Any


def attention(
    q: Array,
    cache: ReferenceKVLayer,
    step: StepInputs,
    *,
    scale: float,
    window: int,
    out: Array,
    softcap: float = 0.0,
    ahead: bool = False,
    sinks: Array | None = None,
) -> None:
    """Write ``softmax(scale q K^T) V`` over the positions that each row sees.

    A row at position p sees ``lowest[seq] <= j <= p`` and, if ``window`` > 0, p - j < ``window``;
    with ``ahead`` also j > p up to the last row of its sequence in this step. Its head h reads KV
    head ``h // (H / Hkv)`` as the cache stores it. A score is ``s = scale q k``, and with a
    softcap ``softcap tanh(s / softcap)``. Each chunk of 64 absolute positions gives
    ``m = max s``, ``l = sum exp(s - m)``, ``o = sum exp(s - m) v`` over its visible keys (the
    others are left out); chunks are merged ascending, ``M' = max(M, m)``,
    ``L' = L exp(M - M') + l exp(m - M')``, O alike, and the result is ``O / L``. A sink is merged
    last, as a chunk with ``m = sink``, ``l = 1``, ``o = 0``.

    Args:
        q: [T, H * Dh] f32, of the step's first T rows; others that they see may follow.
        step: ``positions`` and ``row_seqs`` of the T rows, ``lowest``, with ``ahead``
            ``row_offsets``, and the tables of pages.
        scale: Rounded to float32.
        window: 0 for all positions.
        out: [T, H * Dh] f32.
        softcap: Rounded to float32; 0 for none.
        ahead: Whether rows see those behind them.
        sinks: [H] f32, one more score of each head, or None.
    """
    for row, position in enumerate(step.positions[: len(q)].tolist()):
        heads = q[row].reshape(cache.num_heads, -1, cache.head_dim)
        seq = step.row_seqs[row]
        first = max(int(step.lowest[seq]), position - window + 1 if window else 0)
        last = int(step.positions[step.row_offsets[seq + 1] - 1]) if ahead else position
        total = None
        for chunk in range(first // PAGE, last // PAGE + 1):
            page = page_of(cache, step, seq, chunk)
            visible = slice(max(first - chunk * PAGE, 0), min(last - chunk * PAGE, PAGE - 1) + 1)
            k = decode(cache.k[page, visible], cache.kv_type).transpose(1, 0, 2)  # [Hkv, n, Dh]
            v = decode(cache.v[page, visible], cache.kv_type).transpose(1, 0, 2)
            partial = _attend(heads, k, v, np.float32(scale), np.float32(softcap))
            total = partial if total is None else _merge(total, partial)
        assert total is not None
        if sinks is not None:
            top, weight, value = total
            sink = sinks.reshape(*top.shape)
            total = _merge(total, (sink, np.ones_like(weight), np.zeros_like(value)))
        _, weight, value = total
        out[row] = (value / weight).reshape(-1)


def _attend(q: Array, k: Array, v: Array, scale: Array, cap: Array) -> tuple[Array, Array, Array]:
    """Largest score, sum of weights and weighted values, each [Hkv, G, 1 or Dh]."""
    scores = (q @ k.transpose(0, 2, 1)) * scale
    if cap > 0:
        scores = cap * np.tanh(scores / cap)
    largest = scores.max(axis=-1, keepdims=True)
    weights = np.exp(scores - largest)
    return largest, weights.sum(axis=-1, keepdims=True), weights @ v


def _merge(
    a: tuple[Array, Array, Array], b: tuple[Array, Array, Array]
) -> tuple[Array, Array, Array]:
    largest = np.maximum(a[0], b[0])
    left, right = np.exp(a[0] - largest), np.exp(b[0] - largest)
    return largest, a[1] * left + b[1] * right, a[2] * left + b[2] * right
