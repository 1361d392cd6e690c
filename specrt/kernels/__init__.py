"""The CUDA op set: one launcher per ``cuda/<op>.cu``, over CuPy arrays or the emulator's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..acts import Acts
from ..experts import Experts, Routed
from ..ops import Activation, KVType, Program, Role, Rope
from ..reference.quant_blocks import dequantize
from ..state.recurrent import RecurrentLayer, RecurrentShape
from .accept import accept
from .attention import attention, most_floats, scratch_floats
from .block_conv import block_conv
from .causal_conv import causal_conv
from .copy import copy
from .device import ComputeDevice, Device
from .draft_token import draft_token
from .embed import embed
from .gated_delta import gated_delta
from .glu import glu
from .head import head
from .kv import KernelKVLayer, kv_read, kv_write
from .lattice import lattice
from .linear import linear
from .load_rows import load_rows
from .markov import markov
from .moe import KernelRoom, moe
from .mtp_project import mtp_project
from .program import Recorder
from .quantize import quantize
from .rms_norm import rms_norm
from .rope_kv import rope_kv
from .route import route
from .sample import KernelDraws
from .scale import scale
from .select import select
from .step import KernelStep
from .store_rows import store_rows
from .top_k import top_k
from .weights import KernelExperts, KernelWeight

__all__ = ["KernelOps"]

Array = Any


class KernelOps:
    """The op set of ``specrt.ops.Ops`` over CUDA kernels.

    Args:
        device: a CUDA device, or the emulator.
    """

    def __init__(self, device: ComputeDevice) -> None:
        self.device = device.name
        self._device = device
        self._recorder: Recorder | None = None
        self._scratch: Array | None = None

    @property
    def num_launches(self) -> int:
        """What the device was given to run: kernels one by one, or whole graphs."""
        return self._device.num_launches

    @contextmanager
    def record(self) -> Iterator[Program]:
        """Within the block ops are recorded and not run."""
        if self._recorder is not None:
            raise RuntimeError("a program is being recorded already; end its block first")
        self._recorder = Recorder()
        try:
            yield self._device.program(self._recorder.launches)
        finally:
            self._recorder = None

    @property
    def _to(self) -> Device:
        """What launchers launch on."""
        return self._recorder or self._device

    def buffer(self, shape: tuple[int, ...], dtype: Any) -> Array:
        """A zeroed array on the device."""
        return self._device.zeros(shape, dtype)

    def assign(self, array: Array, values: np.ndarray) -> None:
        """Write values into a buffer, or a part of one."""
        self._device.assign(array, values)

    def to_host(self, array: Array) -> np.ndarray:
        """The values, once every op before has run."""
        return self._device.to_host(array)

    def vector(self, tensor: Any) -> Array:
        """A GGUF tensor of a float type as float32."""
        values = self.buffer(tensor.shape, np.float32)
        read = dequantize(tensor.type.name, tensor.raw.reshape(1, -1))
        self.assign(values, read.reshape(tensor.shape))
        return values

    def weight(self, tensor: Any, role: Role = "int8", bias: Array | None = None) -> KernelWeight:
        """A matrix [N, K] of a GGUF tensor; bias is [N] f32."""
        return KernelWeight(tensor, role, bias, self._device.to_device)

    def expert_weight(self, tensor: Any, role: Role = "int8") -> KernelExperts:
        """Matrices of a GGUF tensor [E, N, K]."""
        return KernelExperts(tensor, role, self._device.to_device)

    def table(self, tensor: Any) -> KernelWeight:
        """A weight that ``embed`` reads."""
        return self.weight(tensor)

    def acts(self, num_rows: int, width: int, weights: Sequence[KernelWeight]) -> Acts:
        """Room for prepared rows in the forms that the weights read."""
        return Acts.empty(num_rows, width, weights, self.buffer)

    def routed(self, num_rows: int, experts: Sequence[Experts]) -> Routed:
        """Room for rows on their way to the experts of any of these layers."""
        return Routed.empty(num_rows, experts, self.buffer, KernelRoom.empty)

    def step_inputs(
        self, num_rows: int, num_seqs: int, num_pages: int, ring_pages: int
    ) -> KernelStep:
        """Step values of at most these numbers."""
        sizes = (num_rows, num_seqs, num_pages, ring_pages)
        return KernelStep(*sizes, self.buffer, self._device.sender)

    def draws(self, num_seqs: int, max_edits: int) -> KernelDraws:
        """Draws of at most these numbers."""
        return KernelDraws(num_seqs, max_edits, self.buffer, self._device.sender, lambda: self._to)

    def top_k(self, logits: Array, *, ids: Array, values: Array) -> None:
        """The largest logits."""
        top_k(self._to, logits, ids=ids, values=values)

    def accept(self, ids: Array, step: KernelStep, *, out: Array) -> None:
        """Greedy acceptance per sequence."""
        accept(self._to, ids, step.on_device, out=out)

    def kv_layer(
        self, num_pages: int, num_heads: int, head_dim: int, kv_type: KVType, ring_pages: int
    ) -> KernelKVLayer:
        """Pages of one layer; ``ring_pages`` 0 for one that keeps every position."""
        return KernelKVLayer(num_pages, num_heads, head_dim, kv_type, ring_pages, self.buffer)

    def recurrent_layer(self, shape: RecurrentShape, num_slots: int) -> RecurrentLayer:
        """States of one layer, one slot for each sequence."""
        return RecurrentLayer(shape, num_slots, self.buffer)

    def kv_read(self, cache: KernelKVLayer, pages: Array, positions: Array) -> tuple[Array, Array]:
        """Stored keys and values, as sessions save them."""
        device = self._device
        with device.ordered():
            return kv_read(
                cache, pages, positions, to_host=device.to_host, to_device=device.to_device
            )

    def kv_write(
        self, cache: KernelKVLayer, pages: Array, positions: Array, k: Array, v: Array
    ) -> None:
        """Store what ``kv_read`` gave."""
        with self._device.ordered():
            kv_write(cache, pages, positions, k, v, to_device=self._device.to_device)

    def rope_kv(
        self,
        q: Array,
        k: Array,
        v: Array,
        cache: KernelKVLayer,
        step: KernelStep,
        *,
        rope: Rope,
        q_norm: Array | None = None,
        k_norm: Array | None = None,
        eps: float = 0.0,
    ) -> None:
        """Head norms, rotary and storing."""
        rope_kv(
            self._to,
            q,
            k,
            v,
            cache,
            step.on_device,
            rope=rope,
            q_norm=q_norm,
            k_norm=k_norm,
            eps=eps,
        )

    def causal_conv(
        self, u: Array, weight: Array, layer: RecurrentLayer, step: KernelStep, *, out: Array
    ) -> None:
        """Convolution over time."""
        causal_conv(self._to, u, weight, layer, step.on_device, out=out)

    def gated_delta(
        self,
        qkv: Array,
        alpha: Array,
        beta: Array,
        layer: RecurrentLayer,
        step: KernelStep,
        *,
        a: Array,
        dt_bias: Array,
        eps: float,
        out: Array,
        states_out: Array | None = None,
    ) -> None:
        """Recurrent states."""
        gated_delta(
            self._to, qkv, alpha, beta, layer, step.on_device,
            a=a, dt_bias=dt_bias, eps=eps, out=out, states_out=states_out,
        )  # fmt: skip

    def attention(
        self,
        q: Array,
        cache: KernelKVLayer,
        step: KernelStep,
        *,
        scale: float,
        window: int,
        out: Array,
        softcap: float = 0.0,
        ahead: bool = False,
        sinks: Array | None = None,
    ) -> None:
        """Attention over the cache."""
        scratch = self._scratch_for(len(q), q.shape[1], cache, step)
        attention(
            self._to,
            q,
            cache,
            step.on_device,
            scale=scale,
            window=window,
            out=out,
            softcap=softcap,
            ahead=ahead,
            sinks=sinks,
            scratch=scratch,
        )

    def _scratch_for(
        self, num_rows: int, width: int, cache: KernelKVLayer, step: KernelStep
    ) -> Array | None:
        """Room for what few rows keep of single chunks; ops run one by one, and share it."""
        size = scratch_floats(num_rows, width, cache, step)
        if size and (self._scratch is None or self._scratch.size < size):
            self._scratch = self.buffer((most_floats(width, cache, step),), np.float32)
        return self._scratch if size else None

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
        rms_norm(self._to, x, weight, eps, out=out, add=add, acts=acts)

    def embed(self, weight: KernelWeight, step: KernelStep, *, scale: float, out: Array) -> None:
        """Rows of the tokens."""
        embed(self._to, weight, step.on_device.tokens, scale=scale, out=out)

    def linear(
        self,
        pairs: Sequence[tuple[KernelWeight, Array]],
        acts: Acts,
        *,
        add: Array | None = None,
    ) -> None:
        """Matrices times rows."""
        linear(self._to, pairs, acts, add=add)

    def route(self, logits: Array, *, out: Routed) -> None:
        """Choose experts."""
        route(self._to, logits, out=out)

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
        moe(
            self._to, acts, experts, routed,
            activation=activation, out=out, add=add, shared=shared, shared_gate=shared_gate,
        )  # fmt: skip

    def head(
        self,
        weight: KernelWeight,
        acts: Acts,
        *,
        ids: Array,
        logits: Array | None,
        softcap: float,
        scale: float = 1.0,
    ) -> None:
        """Logits and their argmax."""
        head(self._to, weight, acts, ids=ids, logits=logits, softcap=softcap, scale=scale)

    def quantize(self, x: Array, *, out: Acts) -> None:
        """Prepare rows for ``linear``."""
        quantize(self._to, x, out=out)

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
        glu(self._to, gate, up, activation=activation, out=out, acts=acts)

    def mtp_project(
        self,
        embedding: KernelWeight,
        hidden: Array,
        projection: KernelWeight,
        step: KernelStep,
        *,
        embedding_norm: Array,
        hidden_norm: Array,
        scale: float,
        eps: float,
        acts: Acts,
        out: Array,
    ) -> None:
        """What a NextN block reads."""
        mtp_project(
            self._to, embedding, hidden, projection, step.on_device,
            embedding_norm=embedding_norm, hidden_norm=hidden_norm,
            scale=scale, eps=eps, acts=acts, out=out,
        )  # fmt: skip

    def draft_token(
        self,
        ids: Array,
        logits: Array,
        step: KernelStep,
        *,
        names: Array | None,
        gates: Array,
        tokens: Array,
        shares: Array,
        stop: Array,
    ) -> None:
        """The next token of a draft; what it feeds is on the device alone."""
        draft_token(
            self._to, ids, logits, step.on_device,
            names=names, gates=gates, tokens=tokens, shares=shares, stop=stop,
        )  # fmt: skip

    def store_rows(self, x: Array, step: KernelStep, *, out: Array) -> None:
        """Rows into rings by position."""
        store_rows(self._to, x, step.on_device, out=out)

    def load_rows(self, rings: Sequence[Array], step: KernelStep, *, acts: Acts) -> None:
        """Rows of rings, side by side."""
        load_rows(self._to, rings, step.on_device, acts=acts)

    def block_conv(
        self,
        x: Array,
        dynamic: Array,
        base: Array,
        step: KernelStep,
        *,
        side: int,
        out: Array | None,
        add: Array | None = None,
        acts: Acts | None = None,
    ) -> None:
        """Convolution within blocks."""
        block_conv(
            self._to, x, dynamic, base, step.on_device, side=side, out=out, add=add, acts=acts
        )

    def lattice(
        self,
        ids: Array,
        logits: Array,
        gates: Array,
        step: KernelStep,
        *,
        predecessor: KernelWeight,
        successor: KernelWeight,
        names: Array | None,
        scores: Array,
    ) -> None:
        """Scores of candidates beside those of the row before."""
        lattice(
            self._to, ids, logits, gates, step.on_device,
            predecessor=predecessor, successor=successor, names=names, scores=scores,
        )  # fmt: skip

    def markov(
        self,
        logits: Array,
        hidden: Array,
        step: KernelStep,
        *,
        predecessor: KernelWeight,
        successor: KernelWeight,
        confidence: Array | None,
        names: Array | None,
        acts: Acts,
        ids: Array,
        confidences: Array | None,
    ) -> None:
        """The ids of a block, each biased by the one before."""
        markov(
            self._to, logits, hidden, step.on_device,
            predecessor=predecessor, successor=successor, confidence=confidence, names=names,
            acts=acts, ids=ids, confidences=confidences,
        )  # fmt: skip

    def scale(self, x: Array, factor: float, *, out: Array, add: Array | None = None) -> None:
        """Multiply by a number."""
        scale(self._to, x, factor, out=out, add=add)

    def copy(self, x: Array, *, out: Array) -> None:
        """Copy rows."""
        copy(self._to, x, out=out)

    def select(self, x: Array, index: Array, *, out: Array) -> None:
        """Choose rows."""
        select(self._to, x, index, out=out)
