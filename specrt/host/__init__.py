"""The host op set: C kernels for AVX-512, AVX2 and any other CPU, run by a team of threads."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from .._ext.host_ops import Tape, Team
from ..acts import Acts
from ..experts import Experts, Routed
from ..ops import Activation, KVType, Role, Rope
from ..reference.quant_blocks import dequantize
from ..state.recurrent import RecurrentLayer, RecurrentShape
from ..state.step import StepInputs
from .accept import accept
from .acts import HostInt8Rows
from .attention import attention
from .block_conv import block_conv
from .causal_conv import causal_conv
from .copy import copy
from .draft_token import draft_token
from .embed import embed
from .gated_delta import gated_delta
from .glu import glu
from .head import head
from .helpers import SteadyTape, Threads
from .huge_pages import Arena, aligned_bytes
from .kv import HostKVLayer, kv_read, kv_write
from .lattice import lattice
from .linear import linear
from .load_rows import load_rows
from .machine import LEVELS, available_levels, choose_level, choose_threads
from .markov import markov
from .moe import HostRoom, moe
from .mtp_project import mtp_project
from .quantize import quantize
from .rms_norm import rms_norm
from .rope_kv import rope_kv
from .route import route
from .sample import HostDraws
from .scale import scale
from .select import select
from .store_rows import store_rows
from .top_k import top_k
from .weights import HostExperts, HostTable, HostWeight

__all__ = ["HostOps", "available_levels"]

Array = Any


class HostOps:
    """The op set of ``specrt.ops.Ops`` for CPUs.

    Args:
        threads: how many; None for all that the process may use.
        level: "avx512", "avx2" or "portable"; None for ``SPECRT_CPU``, else the best. The results
            are the same bits.
    """

    device = "cpu"

    def __init__(self, threads: int | None = None, level: str | None = None) -> None:
        self._level = choose_level(level)
        self._threads = Threads(choose_threads(threads))
        self._team = Team(self._threads.most)
        self._tape: Tape | None = None
        self._arena = Arena()

    @property
    def level(self) -> str:
        """The instruction set that its kernels use."""
        return list(LEVELS)[self._level]

    @property
    def threads(self) -> int:
        """The most threads of the next run; settable at any time."""
        return self._threads.most

    @threads.setter
    def threads(self, num_threads: int) -> None:
        self._threads.most = choose_threads(num_threads)

    @contextmanager
    def record(self) -> Iterator[Tape]:
        """Within the block ops are recorded and not run."""
        if self._tape is not None:
            raise RuntimeError("a program is being recorded already; end its block first")
        self._tape = SteadyTape(self._level, self._team, self._threads)
        try:
            yield self._tape
        finally:
            self._tape = None

    def _do(self, op: Callable[..., None], *args: Any, **keywords: Any) -> None:
        if self._tape is not None:
            op(self._tape, *args, **keywords)
            return
        tape = self._once()
        op(tape, *args, **keywords)
        tape.run()

    def _once(self) -> Tape:
        """A tape for one run on all threads."""
        if self._team.num_threads != self._threads.most:
            self._team.num_threads = self._threads.most
        return Tape(self._level, self._team)

    def buffer(self, shape: tuple[int, ...], dtype: Any) -> Array:
        """A zeroed, 64-byte aligned array: what ops read and write is made here only."""
        memory = aligned_bytes(math.prod(shape) * np.dtype(dtype).itemsize)
        return memory.view(dtype).reshape(shape)

    def assign(self, array: Array, values: np.ndarray) -> None:
        """Write values into a buffer, or a part of one."""
        array[...] = values

    def to_host(self, array: Array) -> np.ndarray:
        """The array itself."""
        return array

    def weight(self, tensor: Any, role: Role = "int8", bias: Array | None = None) -> HostWeight:
        """A matrix [N, K] of a GGUF tensor, packed; bias is [N] f32."""
        weight = HostWeight(tensor, role, bias, self._arena.take)
        weight.pack(self._once())
        return weight

    def table(self, tensor: Any) -> HostTable:
        """A matrix [N, K] over a GGUF tensor, of which ``embed`` reads rows."""
        return HostTable(tensor)

    def expert_weight(self, tensor: Any, role: Role = "int8") -> HostExperts:
        """Matrices of a GGUF tensor [E, N, K], packed."""
        weight = HostExperts(tensor, role, self._arena.take)
        weight.pack(self._once(), tensor)
        return weight

    def vector(self, tensor: Any) -> Array:
        """A GGUF tensor of a float type as float32."""
        values = self.buffer(tensor.shape, np.float32)
        values[:] = dequantize(tensor.type.name, tensor.raw.reshape(1, -1)).reshape(tensor.shape)
        return values

    def acts(self, num_rows: int, width: int, weights: Sequence[HostWeight]) -> Acts:
        """Room for prepared rows in the forms that the weights read."""
        return Acts.empty(num_rows, width, weights, self.buffer, HostInt8Rows)

    def routed(self, num_rows: int, experts: Sequence[Experts]) -> Routed:
        """Room for rows on their way to the experts of any of these layers."""
        return Routed.empty(num_rows, experts, self.buffer, HostRoom.empty)

    def step_inputs(
        self, num_rows: int, num_seqs: int, num_pages: int, ring_pages: int
    ) -> StepInputs:
        """Step values of at most these numbers."""
        return StepInputs(num_rows, num_seqs, num_pages, ring_pages, self.buffer)

    def draws(self, num_seqs: int, max_edits: int) -> HostDraws:
        """Draws of at most so many windows, and edits of each."""
        return HostDraws(num_seqs, max_edits, self.buffer, self._do)

    def kv_layer(
        self, num_pages: int, num_heads: int, head_dim: int, kv_type: KVType, ring_pages: int
    ) -> HostKVLayer:
        """Pages of one layer; ``ring_pages`` 0 for one that keeps every position."""
        return HostKVLayer(num_pages, num_heads, head_dim, kv_type, ring_pages, self.pages)

    def pages(self, shape: tuple[int, ...], dtype: Any) -> Array:
        """A buffer in huge pages, which it shares with others where it does not fill one."""
        memory = self._arena.take(math.prod(shape) * np.dtype(dtype).itemsize)
        return memory.view(dtype).reshape(shape)

    def kv_read(self, cache: HostKVLayer, pages: Array, positions: Array) -> tuple[Array, Array]:
        """Stored keys and values, as sessions save them."""
        return kv_read(cache, pages, positions)

    def kv_write(
        self, cache: HostKVLayer, pages: Array, positions: Array, k: Array, v: Array
    ) -> None:
        """Store what ``kv_read`` gave."""
        kv_write(cache, pages, positions, k, v)

    def recurrent_layer(self, shape: RecurrentShape, num_slots: int) -> RecurrentLayer:
        """States of one layer, one slot for each sequence."""
        return RecurrentLayer(shape, num_slots, self.buffer)

    def embed(self, weight: HostTable, step: StepInputs, *, scale: float, out: Array) -> None:
        """Rows of the tokens."""
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
        """Normalise rows."""
        self._do(rms_norm, x, weight, eps, out=out, add=add, acts=acts)

    def quantize(self, x: Array, *, out: Acts) -> None:
        """Prepare rows for ``linear``."""
        self._do(quantize, x, out=out)

    def linear(
        self,
        pairs: Sequence[tuple[HostWeight, Array]],
        acts: Acts,
        *,
        add: Array | None = None,
    ) -> None:
        """Matrices times rows."""
        self._do(linear, pairs, acts, add=add)

    def rope_kv(
        self,
        q: Array,
        k: Array,
        v: Array,
        cache: HostKVLayer,
        step: StepInputs,
        *,
        rope: Rope,
        q_norm: Array | None = None,
        k_norm: Array | None = None,
        eps: float = 0.0,
    ) -> None:
        """Head norms, rotary and storing."""
        norms = {"q_norm": q_norm, "k_norm": k_norm, "eps": eps}
        self._do(rope_kv, q, k, v, cache, step, rope=rope, **norms)

    def attention(
        self,
        q: Array,
        cache: HostKVLayer,
        step: StepInputs,
        *,
        scale: float,
        window: int,
        out: Array,
        softcap: float = 0.0,
        ahead: bool = False,
        sinks: Array | None = None,
    ) -> None:
        """Attention over the cache."""
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
        """Gate rows."""
        self._do(glu, gate, up, activation=activation, out=out, acts=acts)

    def route(self, logits: Array, *, out: Routed) -> None:
        """Choose experts."""
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
        """Mix experts."""
        self._do(
            moe, acts, experts, routed,
            activation=activation, out=out, add=add, shared=shared, shared_gate=shared_gate,
        )  # fmt: skip

    def head(
        self,
        weight: HostWeight,
        acts: Acts,
        *,
        ids: Array,
        logits: Array | None,
        softcap: float,
        scale: float = 1.0,
    ) -> None:
        """Logits and their argmax."""
        self._do(head, weight, acts, ids=ids, logits=logits, softcap=softcap, scale=scale)

    def top_k(self, logits: Array, *, ids: Array, values: Array) -> None:
        """The largest logits."""
        self._do(top_k, logits, ids=ids, values=values)

    def accept(self, ids: Array, step: StepInputs, *, out: Array) -> None:
        """Greedy acceptance."""
        self._do(accept, ids, step, out=out)

    def mtp_project(
        self,
        embedding: HostTable,
        hidden: Array,
        projection: HostWeight,
        step: StepInputs,
        *,
        embedding_norm: Array,
        hidden_norm: Array,
        scale: float,
        eps: float,
        acts: Acts,
        out: Array,
    ) -> None:
        """What a NextN block reads."""
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
        """The next token of a draft."""
        self._do(
            draft_token, ids, logits, step,
            names=names, gates=gates, tokens=tokens, shares=shares, stop=stop,
        )  # fmt: skip

    def store_rows(self, x: Array, step: StepInputs, *, out: Array) -> None:
        """Rows into rings by position."""
        self._do(store_rows, x, step, out=out)

    def load_rows(self, rings: Sequence[Array], step: StepInputs, *, acts: Acts) -> None:
        """Rows of rings, side by side."""
        self._do(load_rows, rings, step, acts=acts)

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
        """Convolution within blocks."""
        self._do(block_conv, x, dynamic, base, step, side=side, out=out, add=add, acts=acts)

    def lattice(
        self,
        ids: Array,
        logits: Array,
        gates: Array,
        step: StepInputs,
        *,
        predecessor: HostTable,
        successor: HostTable,
        names: Array | None,
        scores: Array,
    ) -> None:
        """Scores of candidates beside those of the row before."""
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
        predecessor: HostTable,
        successor: HostWeight,
        confidence: Array | None,
        names: Array | None,
        acts: Acts,
        ids: Array,
        confidences: Array | None,
    ) -> None:
        """The ids of a block, each biased by the one before."""
        self._do(
            markov, logits, hidden, step,
            predecessor=predecessor, successor=successor, confidence=confidence, names=names,
            acts=acts, ids=ids, confidences=confidences,
        )  # fmt: skip

    def scale(self, x: Array, factor: float, *, out: Array, add: Array | None = None) -> None:
        """Multiply by a number."""
        self._do(scale, x, factor, out=out, add=add)

    def copy(self, x: Array, *, out: Array) -> None:
        """Copy rows; at once it is done here, since to wake the team takes longer."""
        if self._tape is None:
            out[...] = x
        else:
            copy(self._tape, x, out=out)

    def select(self, x: Array, index: Array, *, out: Array) -> None:
        """Choose rows."""
        self._do(select, x, index, out=out)
