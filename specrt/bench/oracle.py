"""What float ops compute with exact arithmetic, as far as float64 has it."""

from __future__ import annotations

from typing import Any

import numpy as np

from specrt.acts import Acts
from specrt.experts import Experts, Routed
from specrt.ops import PAGE, Activation, Rope
from specrt.reference import ReferenceOps
from specrt.reference.causal_conv import extended
from specrt.reference.embed import embed
from specrt.reference.kv import decode
from specrt.reference.weights import ReferenceWeight
from specrt.state.recurrent import RecurrentLayer

Array = Any


class OracleOps(ReferenceOps):
    """The reference with float64 in place of float32 in buffers, and in the ops that stand here.

    What an op rounds by definition, eps and scale, is rounded. A row of an attention is of one
    sequence, whose pages, or those of its ring, are in order.
    """

    device = "oracle"

    def buffer(self, shape: tuple[int, ...], dtype: Any) -> Array:
        """A zeroed array; float64 where float32 is asked for."""
        return np.zeros(shape, np.float64 if np.dtype(dtype) == np.float32 else dtype)

    def rms_norm(
        self,
        x: Array,
        weight: Array | None,
        eps: float,
        *,
        out: Array | None,
        add: Array | None = None,
        acts: Acts | None = None,
    ) -> None:
        """See ``specrt.reference.rms_norm``; acts, which are quantised, have no oracle."""
        assert out is not None and acts is None
        self._do(_rms_norm, x, weight, eps, out, add)

    def glu(
        self,
        gate: Array,
        up: Array,
        *,
        activation: Activation,
        out: Array | None,
        acts: Acts | None = None,
    ) -> None:
        """See ``specrt.reference.glu``; acts, which are quantised, have no oracle."""
        assert out is not None and acts is None
        self._do(_glu, gate, up, activation, out)

    def moe(
        self,
        acts: Acts,
        experts: Experts,
        routed: Routed,
        *,
        activation: Activation,
        out: Array,
        add: Array | None = None,
        shared: Array | None = None,
        shared_gate: Array | None = None,
    ) -> None:
        """See ``specrt.reference.moe``; what is quantised by definition is not."""
        self._do(_moe, acts, experts, routed, activation, out, add, shared, shared_gate)

    def mtp_project(
        self,
        embedding: ReferenceWeight,
        hidden: Array,
        projection: ReferenceWeight,
        step: Any,
        *,
        embedding_norm: Array,
        hidden_norm: Array,
        scale: float,
        eps: float,
        acts: Acts,
        out: Array,
    ) -> None:
        """See ``specrt.reference.mtp_project``; what is quantised by definition is not."""
        norms = embedding_norm, hidden_norm
        self._do(_mtp_project, embedding, hidden, projection, step, norms, scale, eps, out)

    def causal_conv(
        self, u: Array, weight: Array, layer: RecurrentLayer, step: Any, *, out: Array
    ) -> None:
        """See ``specrt.reference.causal_conv``."""
        self._do(_causal_conv, u, weight, layer, step, out)

    def attention(
        self,
        q: Array,
        cache: Any,
        step: Any,
        *,
        scale: float,
        window: int,
        out: Array,
        softcap: float = 0.0,
        ahead: bool = False,
        sinks: Array | None = None,
    ) -> None:
        """See ``specrt.reference.attention``."""
        self._do(_attention, q, cache, step, scale, window, softcap, ahead, sinks, out)

    def head(
        self,
        weight: Any,
        acts: Acts,
        *,
        ids: Array,
        logits: Array | None,
        softcap: float,
        scale: float = 1.0,
    ) -> None:
        """See ``specrt.reference.head``; the product is the reference's."""
        super().head(weight, acts, ids=ids, logits=logits, softcap=0.0)
        if logits is not None:
            self._do(_scale_and_cap, logits, scale, softcap)

    def rope_kv(
        self,
        q: Array,
        k: Array,
        v: Array,
        cache: Any,
        step: Any,
        *,
        rope: Rope,
        q_norm: Array | None = None,
        k_norm: Array | None = None,
        eps: float = 0.0,
    ) -> None:
        """See ``specrt.reference.rope_kv``; for pairs "neox" and float32 caches."""
        self._do(_rope_kv, q, k, v, cache, step, rope.table, (q_norm, k_norm), eps)


def _rms_norm(x: Array, weight: Array | None, eps: float, out: Array, add: Array | None) -> None:
    mean = np.square(x).mean(axis=-1, keepdims=True)
    out[:] = x / np.sqrt(mean + float(np.float32(eps)))
    if weight is not None:
        out *= weight
    if add is not None:
        out += add


def _glu(gate: Array, up: Array, activation: Activation, out: Array) -> None:
    if activation in ("silu", "sigmoid"):
        out[:] = (gate if activation == "silu" else 1) / (1 + np.exp(-gate)) * up
        return
    inner = np.sqrt(2 / np.pi) * (gate + 0.044715 * gate**3)
    out[:] = gate / 2 * (1 + np.tanh(inner)) * up


def _moe(
    acts: Acts,
    experts: Experts,
    routed: Routed,
    activation: Activation,
    out: Array,
    add: Array | None,
    shared: Array | None,
    shared_gate: Array | None,
) -> None:
    rows = _read(acts)
    out[:] = 0 if add is None else add
    for row, rank in np.ndindex(routed.ids.shape):
        gate, up, down = (
            weight.expert(int(routed.ids[row, rank])).values.astype(np.float64)
            for weight in experts.weights
        )
        gated = np.empty(len(gate))
        with np.errstate(over="ignore"):
            _glu(gate @ rows[row], up @ rows[row], activation, gated)
        out[row] += routed.weights[row, rank] * (down @ gated)
    if shared is not None and shared_gate is not None:
        out += shared / (1 + np.exp(-shared_gate))


def _mtp_project(
    embedding: ReferenceWeight,
    hidden: Array,
    projection: ReferenceWeight,
    step: Any,
    norms: tuple[Array, Array],
    scale: float,
    eps: float,
    out: Array,
) -> None:
    """Of rows of one sequence, none of which is its first."""
    rows = np.empty((2, len(out), embedding.shape[1]))
    embed(embedding, step.tokens, scale=scale, out=rows[0])
    rows[1] = hidden[0, (step.positions[: len(out)] - 1) % hidden.shape[1]]
    for half, norm in zip(rows, norms, strict=True):
        _rms_norm(half.copy(), norm, eps, half, None)
    out[:] = np.concatenate(rows, axis=1) @ projection.values.astype(np.float64).T


def _read(acts: Acts) -> Array:
    """What rows were prepared from, as far as they tell."""
    if acts.x is not None:
        return acts.x.astype(np.float64)
    forms = [form for form in (acts.first, acts.second) if form is not None]
    return sum(form.q * np.repeat(form.d, 32, axis=1).astype(np.float64) for form in forms)


def _causal_conv(u: Array, weight: Array, layer: RecurrentLayer, step: Any, out: Array) -> None:
    for begin, end, rows in extended(u, layer, step):
        taps = range(weight.shape[1])
        total = sum(weight[:, j] * rows[j : j + end - begin] for j in taps)
        out[begin:end] = total / (1 + np.exp(-total))


def _attention(
    q: Array,
    cache: Any,
    step: Any,
    scale: float,
    window: int,
    softcap: float,
    ahead: bool,
    sinks: Array | None,
    out: Array,
) -> None:
    shape = (-1, cache.num_heads, cache.head_dim)
    keys, values = (
        decode(stored, cache.kv_type).reshape(shape).astype(np.float64)
        for stored in (cache.k, cache.v)
    )
    positions = step.positions[: len(q)]
    if sinks is None:
        sinks = np.full(q.shape[1] // cache.head_dim, -np.inf)
    sink = sinks.reshape(cache.num_heads, -1, 1).astype(np.float64)
    for row, position in enumerate(positions):
        first = max(step.lowest[0], position - window + 1 if window else 0)
        last = positions[-1] if ahead else position
        seen = np.arange(first, last + 1) % keys.shape[0]  # a ring begins anew
        k, v = (x[seen].transpose(1, 0, 2) for x in (keys, values))
        scores = q[row].reshape(cache.num_heads, -1, cache.head_dim) @ k.transpose(0, 2, 1)
        scores *= float(np.float32(scale))
        if softcap > 0:
            _cap(scores, softcap)
        top = np.maximum(scores.max(axis=-1, keepdims=True), sink)
        weights = np.exp(scores - top)
        total = weights.sum(axis=-1, keepdims=True) + np.exp(sink - top)
        out[row] = (weights / total @ v).reshape(-1)


def _scale_and_cap(x: Array, scale: float, softcap: float) -> None:
    x *= float(np.float32(scale))
    if softcap > 0:
        _cap(x, softcap)


def _cap(x: Array, softcap: float) -> None:
    cap = float(np.float32(softcap))
    x[:] = cap * np.tanh(x / cap)


def _rope_kv(
    q: Array,
    k: Array,
    v: Array,
    cache: Any,
    step: Any,
    table: Array,
    norms: tuple[Array | None, Array | None],
    eps: float,
) -> None:
    positions = step.positions[: len(q)]
    for x, norm in zip((q, k), norms, strict=True):
        heads = x.reshape(len(x), -1, cache.head_dim)
        if norm is not None:
            _rms_norm(heads.copy(), norm, eps, heads, None)
        half = table.shape[1]
        a, b = heads[..., :half].copy(), heads[..., half : 2 * half].copy()
        cos, sin = table[positions].transpose(2, 0, 1)[:, :, None]
        heads[..., :half] = a * cos - b * sin
        heads[..., half : 2 * half] = a * sin + b * cos
    for x, stored in ((k, cache.k), (v, cache.v)):
        stored[positions // PAGE, positions % PAGE] = x.reshape(len(x), -1, cache.head_dim)
