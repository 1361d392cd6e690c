"""The gated delta rule: a matrix per head that forgets, and learns what it got wrong."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..ops import StepInputs
from ..state.recurrent import MOST_KEPT, RecurrentLayer, RecurrentShape
from .causal_conv import sequences

Array = Any


def gated_delta(
    qkv: Array,
    alpha: Array,
    beta: Array,
    layer: RecurrentLayer,
    step: StepInputs,
    *,
    a: Array,
    dt_bias: Array,
    eps: float,
    out: Array,
    states_out: Array | None = None,
) -> None:
    """Run the rows of each sequence through its states, head by head.

    With q and k of a head divided by ``sqrt(sum x^2 + eps)`` and q by ``sqrt(Dk)``, value head j
    reads q and k of head ``j % Hk`` and does for each row

        g = exp(a softplus(alpha + dt_bias));  M = g M
        d = sigmoid(beta) (v - k^T M);  M = M + k d^T;  o = q^T M

    M is at first state ``live``, or zeros at position 0, behind the ``pending`` rows before the
    first, which the log gives. That is written to the other state, and k, d and g of the rows to
    the log; of more than W rows, which nobody takes back, the other state gets M behind the last.

    Args:
        qkv: [T, 2 Hk Dk + Hv Dv] f32, q then k then v.
        alpha, beta: [T, Hv] f32.
        layer: its states and log.
        step: ``positions`` and ``row_offsets`` of the T rows; ``slots``, ``live`` and ``pending``
            of the sequences.
        a, dt_bias: [Hv] f32; a is below 0.
        eps: Rounded to float32.
        out: [T, Hv Dv] f32.
        states_out: [T, Hv, Dk, Dv] f32, M behind each row, or None.
    """
    shape = layer.shape
    q, k, v = _split(qkv, shape, np.float32(eps))
    decay = np.exp(a * _softplus(alpha + dt_bias))
    with np.errstate(over="ignore"):
        rate = np.float32(1) / (np.float32(1) + np.exp(-beta))
    for number, begin, end, slot, start in sequences(step, len(qkv)):
        live, pending = int(step.live[number]), int(step.pending[number])
        few = end - begin <= MOST_KEPT
        state = _behind_pending(layer, slot, live, start, pending)
        if few:
            layer.states[slot, 1 - live] = state
        for row in range(begin, end):
            heads = np.arange(shape.value_heads) % shape.key_heads
            key, query = k[row, heads], q[row, heads]
            state = state * decay[row, :, None, None]
            read = (key[..., None] * state).sum(axis=1)
            delta = rate[row, :, None] * (v[row] - read)
            state = state + key[..., None] * delta[:, None]
            out[row] = (query[..., None] * state).sum(axis=1).reshape(-1)
            if states_out is not None:
                states_out[row] = state
            if few:
                place = (start + row - begin) % layer.log_k.shape[1]
                layer.log_k[slot, place] = k[row].reshape(-1)
                layer.log_delta[slot, place] = delta.reshape(-1)
                layer.log_decay[slot, place] = decay[row]
        if not few:
            layer.states[slot, 1 - live] = state


def _behind_pending(layer: RecurrentLayer, slot: int, live: int, start: int, pending: int) -> Array:
    """The state before the first row, [Hv, Dk, Dv]."""
    shape = layer.shape
    state = layer.states[slot, live]
    if start == pending:  # nothing is in it: all rows so far are pending
        state = np.zeros_like(state)
    heads = np.arange(shape.value_heads) % shape.key_heads
    for position in range(start - pending, start):
        place = position % layer.log_k.shape[1]
        key = layer.log_k[slot, place].reshape(shape.key_heads, -1)[heads]
        delta = layer.log_delta[slot, place].reshape(shape.value_heads, -1)
        state = state * layer.log_decay[slot, place, :, None, None]
        state = state + key[..., None] * delta[:, None]
    return state


def _split(qkv: Array, shape: RecurrentShape, eps: Array) -> tuple[Array, Array, Array]:
    """Normed q and k [T, Hk, Dk], and v [T, Hv, Dv]."""
    size = shape.key_heads * shape.key_dim
    q, k = (
        part.reshape(len(qkv), shape.key_heads, shape.key_dim)
        for part in (qkv[:, :size], qkv[:, size : 2 * size])
    )
    q, k = (x / np.sqrt((x * x).sum(axis=-1, keepdims=True) + eps) for x in (q, k))
    q = q * np.float32(1 / math.sqrt(shape.key_dim))
    return q, k, qkv[:, 2 * size :].reshape(len(qkv), shape.value_heads, shape.value_dim)


def _softplus(x: Array) -> Array:
    """log(1 + exp x)."""
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))
