"""The reference op set: what each op means, in plain array code."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from ..acts import Acts
from ..experts import Experts, Routed
from ..ops import Activation, KVType, Role, Rope
from ..state.recurrent import RecurrentLayer, RecurrentShape
from ..state.step import StepInputs
from .accept import accept
from .attention import attention
from .block_conv import block_conv
from .causal_conv import causal_conv
from .copy import copy
from .draft_token import draft_token
from .embed import embed
from .gated_delta import gated_delta
from .glu import glu
from .head import head
from .kv import ReferenceKVLayer, kv_read, kv_write
from .lattice import lattice
from .linear import linear
from .load_rows import load_rows
from .markov import markov
from .moe import moe
from .mtp_project import mtp_project
from .quant_blocks import dequantize
from .quantize import quantize
from .rms_norm import rms_norm
from .rope_kv import rope_kv
from .route import route
from .scale import scale
from .select import select
from .store_rows import store_rows
from .top_k import top_k
from .weights import ReferenceExperts, ReferenceWeight

__all__ = ["Program", "ReferenceOps"]

Array = Any


class Program:
    """Recorded calls."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []

    def prepare(self) -> None:
        """Nothing: calls need no more."""

    def run(self) -> None:
        """Make every call, in order."""
        for call in self.calls:
            call()

    def repeat(self, times: int, until: Array) -> int:
        """Run up to ``times`` times, while ``until[0]`` is 0; returns how often."""
        done = 0
        while done < times and not until[0]:
            self.run()
            done += 1
        return done


class ReferenceOps:
    """The op set of ``specrt.ops.Ops`` over NumPy arrays; each op is a function of its module."""

    device = "reference"

    def __init__(self) -> None:
        self._program: Program | None = None

    @contextmanager
    def record(self) -> Iterator[Program]:
        """Within the block ops are recorded and not run."""
        if self._program is not None:
            raise RuntimeError("a program is being recorded already; end its block first")
        self._program = Program()
        try:
            yield self._program
        finally:
            self._program = None

    def _do(self, op: Callable[..., None], *args: Any, **keywords: Any) -> None:
        if self._program is None:
            op(*args, **keywords)
        else:
            self._program.calls.append(partial(op, *args, **keywords))

    def buffer(self, shape: tuple[int, ...], dtype: Any) -> Array:
        """A zeroed array."""
        return np.zeros(shape, dtype)

    def assign(self, array: Array, values: np.ndarray) -> None:
        """Write values into a buffer, or a part of one."""
        array[...] = values

    def to_host(self, array: Array) -> np.ndarray:
        """The array itself."""
        return array

    def weight(
        self, tensor: Any, role: Role = "int8", bias: Array | None = None
    ) -> ReferenceWeight:
        """A matrix [N, K] over a GGUF tensor; bias is [N] f32."""
        return ReferenceWeight(tensor, role, bias)

    def table(self, tensor: Any) -> ReferenceWeight:
        """A weight that ``embed`` reads."""
        return self.weight(tensor)

    def expert_weight(self, tensor: Any, role: Role = "int8") -> ReferenceExperts:
        """Matrices of a GGUF tensor [E, N, K]."""
        return ReferenceExperts(tensor, role)

    def vector(self, tensor: Any) -> Array:
        """A GGUF tensor of a float type as float32."""
        values = self.buffer(tensor.shape, np.float32)
        values[:] = dequantize(tensor.type.name, tensor.raw.reshape(1, -1)).reshape(tensor.shape)
        return values

    def acts(self, num_rows: int, width: int, weights: Sequence[ReferenceWeight]) -> Acts:
        """Room for prepared rows in the forms that the weights read."""
        return Acts.empty(num_rows, width, weights)

    def routed(self, num_rows: int, experts: Sequence[Experts]) -> Routed:
        """Room for rows on their way to the experts of any of these layers."""
        return Routed.empty(num_rows, experts, self.buffer)

    def step_inputs(
        self, num_rows: int, num_seqs: int, num_pages: int, ring_pages: int
    ) -> StepInputs:
        """Step values of at most these numbers."""
        return StepInputs(num_rows, num_seqs, num_pages, ring_pages, self.buffer)

    def draws(self, num_seqs: int, max_edits: int) -> None:
        """None: samplers read the logits where they are."""

    def kv_layer(
        self, num_pages: int, num_heads: int, head_dim: int, kv_type: KVType, ring_pages: int
    ) -> ReferenceKVLayer:
        """Pages of one layer; ``ring_pages`` 0 for one that keeps every position."""
        return ReferenceKVLayer(num_pages, num_heads, head_dim, kv_type, ring_pages)

    def recurrent_layer(self, shape: RecurrentShape, num_slots: int) -> RecurrentLayer:
        """States of one layer, one slot for each sequence."""
        return RecurrentLayer(shape, num_slots, self.buffer)

    def kv_read(
        self, cache: ReferenceKVLayer, pages: Array, positions: Array
    ) -> tuple[Array, Array]:
        """Stored keys and values, as sessions save them."""
        return kv_read(cache, pages, positions)

    def kv_write(
        self, cache: ReferenceKVLayer, pages: Array, positions: Array, k: Array, v: Array
    ) -> None:
        """Store what ``kv_read`` gave."""
        kv_write(cache, pages, positions, k, v)

    def embed(self, weight: ReferenceWeight, step: StepInputs, *, scale: float, out: Array) -> None:
        """Rows of the tokens: see ``embed``."""
        self._do(embed, weight, step.tokens, scale=scale, out=out)

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
        """Normalise rows: see ``rms_norm``."""
        self._do(rms_norm, x, weight, eps, out=out, add=add, acts=acts)

    def quantize(self, x: Array, *, out: Acts) -> None:
        """Prepare rows for ``linear``: see ``quantize``."""
        self._do(quantize, x, out=out)

    def linear(
        self,
        pairs: Sequence[tuple[ReferenceWeight, Array]],
        acts: Acts,
        *,
        add: Array | None = None,
    ) -> None:
        """Matrices times rows: see ``linear``."""
        self._do(linear, list(pairs), acts, add=add)

    def rope_kv(
        self,
        q: Array,
        k: Array,
        v: Array,
        cache: ReferenceKVLayer,
        step: StepInputs,
        *,
        rope: Rope,
        q_norm: Array | None = None,
        k_norm: Array | None = None,
        eps: float = 0.0,
    ) -> None:
        """Head norms, rotary and storing: see ``rope_kv``."""
        norms = {"q_norm": q_norm, "k_norm": k_norm, "eps": eps}
        self._do(rope_kv, q, k, v, cache, step, rope=rope, **norms)

    def attention(
        self,
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
        """Attention over the cache: see ``attention``."""
        self._do(
            attention, q, cache, step,
            scale=scale, window=window, out=out, softcap=softcap, ahead=ahead, sinks=sinks,
        )  # fmt: skip

    def causal_conv(
        self, u: Array, weight: Array, layer: RecurrentLayer, step: StepInputs, *, out: Array
    ) -> None:
        """Convolution over time: see ``causal_conv``."""
        self._do(causal_conv, u, weight, layer, step, out=out)

    def gated_delta(
        self,
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
        """Recurrent states: see ``gated_delta``."""
        self._do(
            gated_delta, qkv, alpha, beta, layer, step,
            a=a, dt_bias=dt_bias, eps=eps, out=out, states_out=states_out,
        )  # fmt: skip

    def glu(
        self,
        gate: Array,
        up: Array,
        *,
        activation: Activation,
        out: Array | None,
        acts: Acts | None = None,
    ) -> None:
        """Gate rows: see ``glu``."""
        self._do(glu, gate, up, activation=activation, out=out, acts=acts)

    def route(self, logits: Array, *, out: Routed) -> None:
        """Choose experts: see ``route``."""
        self._do(route, logits, out=out)

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
        """Mix experts: see ``moe``."""
        self._do(
            moe, acts, experts, routed,
            activation=activation, out=out, add=add, shared=shared, shared_gate=shared_gate,
        )  # fmt: skip

    def head(
        self,
        weight: ReferenceWeight,
        acts: Acts,
        *,
        ids: Array,
        logits: Array | None,
        softcap: float,
        scale: float = 1.0,
    ) -> None:
        """Logits and their argmax: see ``head``."""
        self._do(head, weight, acts, ids=ids, logits=logits, softcap=softcap, scale=scale)

    def top_k(self, logits: Array, *, ids: Array, values: Array) -> None:
        """The largest logits: see ``top_k``."""
        self._do(top_k, logits, ids=ids, values=values)

    def accept(self, ids: Array, step: StepInputs, *, out: Array) -> None:
        """Greedy acceptance: see ``accept``."""
        self._do(accept, ids, step, out=out)

    def mtp_project(
        self,
        embedding: ReferenceWeight,
        hidden: Array,
        projection: ReferenceWeight,
        step: StepInputs,
        *,
        embedding_norm: Array,
        hidden_norm: Array,
        scale: float,
        eps: float,
        acts: Acts,
        out: Array,
    ) -> None:
        """What a NextN block reads: see ``mtp_project``."""
        self._do(
            mtp_project, embedding, hidden, projection, step,
            embedding_norm=embedding_norm, hidden_norm=hidden_norm,
            scale=scale, eps=eps, acts=acts, out=out,
        )  # fmt: skip

    def draft_token(
        self,
        ids: Array,
        logits: Array,
        step: StepInputs,
        *,
        names: Array | None,
        gates: Array,
        tokens: Array,
        shares: Array,
        stop: Array,
    ) -> None:
        """The next token of a draft: see ``draft_token``."""
        self._do(
            draft_token, ids, logits, step,
            names=names, gates=gates, tokens=tokens, shares=shares, stop=stop,
        )  # fmt: skip

    def store_rows(self, x: Array, step: StepInputs, *, out: Array) -> None:
        """Rows into rings by position: see ``store_rows``."""
        self._do(store_rows, x, step, out=out)

    def load_rows(self, rings: Sequence[Array], step: StepInputs, *, acts: Acts) -> None:
        """Rows of rings side by side: see ``load_rows``."""
        self._do(load_rows, list(rings), step, acts=acts)

    def block_conv(
        self,
        x: Array,
        dynamic: Array,
        base: Array,
        step: StepInputs,
        *,
        side: int,
        out: Array | None,
        add: Array | None = None,
        acts: Acts | None = None,
    ) -> None:
        """Convolution within blocks: see ``block_conv``."""
        self._do(block_conv, x, dynamic, base, step, side=side, out=out, add=add, acts=acts)

    def lattice(
        self,
        ids: Array,
        logits: Array,
        gates: Array,
        step: StepInputs,
        *,
        predecessor: ReferenceWeight,
        successor: ReferenceWeight,
        names: Array | None,
        scores: Array,
    ) -> None:
        """Scores of neighbouring candidates: see ``lattice``."""
        self._do(
            lattice, ids, logits, gates, step,
            predecessor=predecessor, successor=successor, names=names, scores=scores,
        )  # fmt: skip

    def markov(
        self,
        logits: Array,
        hidden: Array,
        step: StepInputs,
        *,
        predecessor: ReferenceWeight,
        successor: ReferenceWeight,
        confidence: Array | None,
        names: Array | None,
        acts: Acts,
        ids: Array,
        confidences: Array | None,
    ) -> None:
        """Ids one after the other: see ``markov``."""
        self._do(
            markov, logits, hidden, step,
            predecessor=predecessor, successor=successor, confidence=confidence, names=names,
            acts=acts, ids=ids, confidences=confidences,
        )  # fmt: skip

    def scale(self, x: Array, factor: float, *, out: Array, add: Array | None = None) -> None:
        """Multiply by a number: see ``scale``."""
        self._do(scale, x, factor, out=out, add=add)

    def copy(self, x: Array, *, out: Array) -> None:
        """Copy rows: see ``copy``."""
        self._do(copy, x, out=out)

    def select(self, x: Array, index: Array, *, out: Array) -> None:
        """Choose rows: see ``select``."""
        self._do(select, x, index, out=out)
