"""What the architectures share: the working buffers, and the weights of one block."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from specrt.errors import UnsupportedError
from specrt.experts import Experts, Routed
from specrt.gguf.reader import GGUFFile
from specrt.models.loader import Dims, Loader
from specrt.ops import Activation, Acts, Array, KVLayer, Ops, Rope, StepInputs, Weight
from specrt.state.recurrent import RecurrentLayer, RecurrentShape


class Workspace:
    """The buffers that every layer of a forward reuses, and views of their first rows.

    Args:
        ops: the op set.
        num_rows: the most rows of a forward.
        width: D.
        weights: every matrix of the layers.
        head: the LM head, which reads the last hidden rows.
        num_outs: output buffers that a layer uses at a time.
        experts: of every layer that has some.
    """

    def __init__(
        self,
        ops: Ops,
        num_rows: int,
        width: int,
        weights: Iterable[Weight],
        head: Weight,
        num_outs: int,
        experts: Sequence[Experts] = (),
    ) -> None:
        self._ops = ops
        weights = list(weights)
        widest = max(weight.shape[0] for weight in weights)
        weights.append(head)
        self.residual = ops.buffer((num_rows, width), np.float32)
        self.hidden = ops.buffer((num_rows, width), np.float32)
        self._outs = [ops.buffer((num_rows * widest,), np.float32) for _ in range(num_outs)]
        self._acts: dict[int, Acts] = {
            columns: ops.acts(num_rows, columns, [w for w in weights if w.shape[1] == columns])
            for columns in {weight.shape[1] for weight in weights}
        }
        self._routed = ops.routed(num_rows, experts) if experts else None

    def outs(self, num_rows: int, *widths: int) -> list[Array]:
        """One [num_rows, width] float32 buffer for each width, the same ones in every call."""
        return [self.out(number, num_rows, width) for number, width in enumerate(widths)]

    def out(self, number: int, num_rows: int, width: int) -> Array:
        """That of ``outs`` with the number."""
        return self._outs[number][: num_rows * width].reshape(num_rows, width)

    def linear(
        self, x: Array, pairs: Sequence[tuple[Weight, Array]], *, add: Array | None = None
    ) -> None:
        """Project rows x by every weight into its output; ``add`` is added to the result."""
        acts = self.acts(len(x), x.shape[1])
        self._ops.quantize(x, out=acts)
        self._ops.linear(pairs, acts, add=add)

    def routed(self, num_rows: int) -> Routed:
        """Where rows on their way to experts are."""
        assert self._routed is not None, "a workspace of no experts"
        return self._routed.rows(num_rows)

    def acts(self, num_rows: int, width: int) -> Acts:
        """Where rows are prepared for the weights that read rows of that width."""
        return self._acts[width].rows(num_rows)


@dataclass(frozen=True, slots=True)
class Forward:
    """What one recorded forward runs over.

    Args:
        ops: the op set, recording.
        work: the buffers.
        step: the step's inputs.
        x: [T, D] float32, the residual.
        h: [T, D] float32, scratch of the same shape.
        caches: what each layer keeps.
    """

    ops: Ops
    work: Workspace
    step: StepInputs
    x: Array
    h: Array
    caches: Sequence[KVLayer | RecurrentLayer] | Mapping[int, KVLayer]

    @property
    def num_rows(self) -> int:
        """T."""
        return self.x.shape[0]

    def normed(self, weight: Array, eps: float) -> Acts:
        """Record the norm of the residual, prepared for the weights."""
        acts = self.work.acts(*self.x.shape)
        self.ops.rms_norm(self.x, weight, eps, out=None, acts=acts)
        return acts


@dataclass(frozen=True, slots=True)
class AttentionWeights:
    """The projections of one attention: each [out, in]; head norms [Dh] if the model has them.

    Without v the values are the keys' projection, each head normed without a weight.
    """

    q: Weight
    k: Weight
    v: Weight | None
    output: Weight
    q_norm: Array | None
    k_norm: Array | None

    @classmethod
    def load(
        cls,
        loader: Loader,
        dims: Dims,
        layer: int,
        *,
        head_norms: bool,
        may_share: bool = False,
    ) -> AttentionWeights:
        """Claim ``blk.<layer>.attn_*``; one fused ``attn_qkv`` may stand for q, k and v.

        Args:
            may_share: the file may leave ``attn_v`` out.
        """
        prefix = f"blk.{layer}.attn"
        q_rows = dims.heads[layer] * dims.head_dim
        kv_rows = dims.kv_heads[layer] * dims.head_dim
        v: Weight | None = None
        if loader.has(f"{prefix}_qkv.weight"):
            heights = (q_rows, kv_rows, kv_rows)
            q, k, v = loader.slices(f"{prefix}_qkv.weight", heights, dims.width)
        else:

            def projection(name: str, rows: int) -> Weight:
                name = f"{prefix}_{name}"
                return loader.weight(f"{name}.weight", rows, dims.width, bias=f"{name}.bias")

            q, k = projection("q", q_rows), projection("k", kv_rows)
            if not may_share or loader.has(f"{prefix}_v.weight"):
                v = projection("v", kv_rows)
        output = loader.weight(
            f"{prefix}_output.weight", dims.width, q_rows, bias=f"{prefix}_output.bias"
        )
        q_norm, k_norm = (
            loader.vector(f"{prefix}_{n}_norm.weight", dims.head_dim) if head_norms else None
            for n in "qk"
        )
        return cls(q, k, v, output, q_norm, k_norm)

    @property
    def weights(self) -> tuple[Weight, ...]:
        """All matrices."""
        return self.q, self.k, *([] if self.v is None else [self.v]), self.output

    def attend(
        self,
        f: Forward,
        rows: Acts,
        layer: int,
        dims: Dims,
        rope: Rope,
        *,
        scale: float | None = None,
        window: int = 0,
        ahead: bool = False,
        sinks: Array | None = None,
        num_queries: int | None = None,
        beside: Sequence[tuple[Weight, Array]] = (),
    ) -> Array:
        """Record q, k, v of the rows, rotary, the cache write and the attention over it.

        Args:
            rows: T prepared ones.
            beside: what else is projected of them, none of it into the first four ``outs``.
            scale: of the scores, None for 1 / sqrt(Dh).
            window: keys that a query sees, itself included; 0 for all.
            ahead: rows see those behind them too.
            sinks: [H] float32, one more score of each head.
            num_queries: n, the first rows that attend; None for all T.

        Returns:
            [n, H * Dh] float32, before the output projection.
        """
        widths = (w.shape[0] for w in (self.q, self.k, self.k))
        q, k, v, attended = f.work.outs(f.num_rows, *widths, self.q.shape[0])
        cache = f.caches[layer]
        self._project(f, rows, [(self.q, q), *beside], k, v, dims)
        f.ops.rope_kv(
            q, k, v, cache, f.step,
            rope=rope, q_norm=self.q_norm, k_norm=self.k_norm, eps=dims.eps,
        )  # fmt: skip
        if scale is None:
            scale = 1 / math.sqrt(dims.head_dim)
        q, attended = q[:num_queries], attended[:num_queries]
        f.ops.attention(
            q, cache, f.step, scale=scale, window=window, out=attended, ahead=ahead, sinks=sinks
        )
        return attended

    def record(
        self,
        f: Forward,
        rows: Acts,
        layer: int,
        dims: Dims,
        rope: Rope,
        *,
        out: Array,
        add: Array | None = None,
        scale: float | None = None,
        window: int = 0,
    ) -> None:
        """Record ``out = attention output^T (+ add)`` of T prepared rows: see ``attend``."""
        attended = self.attend(f, rows, layer, dims, rope, scale=scale, window=window)
        f.work.linear(attended, [(self.output, out)], add=add)

    def remember(self, f: Forward, rows: Acts, layer: int, dims: Dims, rope: Rope) -> None:
        """Record the cache write of the rows alone."""
        width = self.k.shape[0]
        nobody_s_q, k, v = f.work.outs(f.num_rows, width, width, width)
        self._project(f, rows, [], k, v, dims)
        f.ops.rope_kv(
            nobody_s_q, k, v, f.caches[layer], f.step,
            rope=rope, q_norm=self.q_norm, k_norm=self.k_norm, eps=dims.eps,
        )  # fmt: skip

    def _project(
        self,
        f: Forward,
        rows: Acts,
        beside: Sequence[tuple[Weight, Array]],
        k: Array,
        v: Array,
        dims: Dims,
    ) -> None:
        """Record keys and values of the rows, and what else is projected of them."""
        values = [] if self.v is None else [(self.v, v)]
        f.ops.linear([*beside, (self.k, k), *values], rows)
        if self.v is None:
            heads = (-1, dims.head_dim)
            f.ops.rms_norm(k.reshape(heads), None, dims.eps, out=v.reshape(heads))


class FeedForward(Protocol):
    """What follows the mixer of a block."""

    @property
    def weights(self) -> tuple[Weight, ...]:
        """All matrices."""

    @property
    def experts(self) -> Sequence[Experts]:
        """Those that it has, or none."""

    def feed(
        self, f: Forward, rows: Acts, activation: Activation, out: Array, add: Array | None = None
    ) -> None:
        """Record ``out = ffn(h) (+ add)`` of the prepared rows h."""


@dataclass(frozen=True, slots=True)
class FeedForwardWeights:
    """The gated feed-forward: gate and up [F, D], down [D, F]."""

    gate: Weight
    up: Weight
    down: Weight

    @classmethod
    def load(cls, loader: Loader, dims: Dims, layer: int) -> FeedForwardWeights:
        """Claim ``blk.<layer>.ffn_gate``, ``ffn_up`` and ``ffn_down``."""
        return cls.named(loader, f"blk.{layer}.ffn_{{}}.weight", dims.width, dims.ffn_width[layer])

    @classmethod
    def named(cls, loader: Loader, name: str, width: int, hidden: int) -> FeedForwardWeights:
        """Claim the three of these names, with ``gate``, ``up`` and ``down`` for the braces."""
        gate, up = (loader.weight(name.format(side), hidden, width) for side in ("gate", "up"))
        return cls(gate, up, loader.weight(name.format("down"), width, hidden))

    @property
    def weights(self) -> tuple[Weight, ...]:
        """All matrices."""
        return self.gate, self.up, self.down

    @property
    def experts(self) -> Sequence[Experts]:
        """None."""
        return ()

    def feed(
        self, f: Forward, rows: Acts, activation: Activation, out: Array, add: Array | None = None
    ) -> None:
        """Record ``down (activation(gate h) * up h) (+ add)`` of the prepared rows h."""
        width = self.gate.shape[0]
        gate, up = f.work.outs(f.num_rows, width, width)
        f.ops.linear([(self.gate, gate), (self.up, up)], rows)
        gated = f.work.acts(f.num_rows, width)
        f.ops.glu(gate, up, activation=activation, out=None, acts=gated)
        f.ops.linear([(self.down, out)], gated, add=add)


@dataclass(frozen=True, slots=True)
class PreNormBlock:
    """x += attention(rms(x)); x += swiglu(rms(x))."""

    attn_norm: Array
    attention: AttentionWeights
    ffn_norm: Array
    ffn: FeedForwardWeights

    @classmethod
    def load(cls, loader: Loader, dims: Dims, layer: int, *, head_norms: bool) -> PreNormBlock:
        """Claim ``blk.<layer>.*``."""
        return cls(
            attn_norm=loader.vector(f"blk.{layer}.attn_norm.weight", dims.width),
            attention=AttentionWeights.load(loader, dims, layer, head_norms=head_norms),
            ffn_norm=loader.vector(f"blk.{layer}.ffn_norm.weight", dims.width),
            ffn=FeedForwardWeights.load(loader, dims, layer),
        )

    @property
    def weights(self) -> tuple[Weight, ...]:
        """All matrices."""
        return *self.attention.weights, *self.ffn.weights

    def record(self, f: Forward, layer: int, dims: Dims, rope: Rope) -> None:
        """Record the block over the residual ``f.x``."""
        rows = f.normed(self.attn_norm, dims.eps)
        self.attention.record(f, rows, layer, dims, rope, out=f.x, add=f.x)
        self.ffn.feed(f, f.normed(self.ffn_norm, dims.eps), "silu", f.x, add=f.x)


@dataclass(frozen=True, slots=True)
class DraftBlock:
    """The block of a draft head.

    Args:
        weights: its matrices.
        experts: those of its feed-forward, if it has some.
        record: records it over the residual.
        remember: records no more of it than later rows read, keys and values.
    """

    weights: tuple[Weight, ...]
    experts: Sequence[Experts]
    record: Callable[[Forward], None]
    remember: Callable[[Forward], None]


class Trunk(ABC):
    """One architecture's layers between the embedding and the LM head.

    A subclass's constructor claims the rest of its tensors and sets ``weights``.

    Args:
        loader: the file.
        context: positions that the rotary tables cover.

    Attributes:
        gguf: the file.
        ops: the op set that the weights are on.
        dims: the hyperparameters.
        weights: every matrix of the blocks.
        windows: the sliding window of each layer, 0 for all keys.
        experts: of every layer that has some.
        takes_experts: whether the architecture has a place for experts.
        num_outs: output buffers that a layer uses at a time.
        embedding_scale: multiplies the embedding rows.
        logit_scale: s of the logits c tanh(s l / c).
        softcap: c of them, 0 for none.
        preferred_num_draft: K where the user sets none, None if the family has no preference.
    """

    weights: Sequence[Weight]
    experts: Sequence[Experts] = ()
    takes_experts = False
    num_outs = 4
    embedding_scale = 1.0
    logit_scale = 1.0
    softcap = 0.0
    preferred_num_draft: int | None = None

    def __init__(self, loader: Loader, context: int) -> None:
        self.gguf, self.ops = loader.gguf, loader.ops
        self.dims = dims = Dims.read(loader.gguf)
        if dims.num_experts and not self.takes_experts:
            gguf = loader.gguf
            raise UnsupportedError(
                f"{gguf.path}: {gguf.architecture} with {dims.num_experts} experts is not run; use "
                "a dense model"
            )
        self.windows = self.sliding_windows(loader.gguf, dims.num_layers)
        self.output_norm = loader.vector("output_norm.weight", dims.width)
        size = (dims.vocab_size, dims.width)
        if loader.has("output.weight"):
            self.token_embd = loader.table("token_embd.weight", *size)
            self.output = loader.weight("output.weight", *size)
        else:
            self.token_embd = self.output = loader.weight("token_embd.weight", *size)

    @classmethod
    def sliding_windows(cls, gguf: GGUFFile, num_layers: int) -> tuple[int, ...]:
        """The sliding window of each layer, 0 for all keys."""
        return (0,) * num_layers

    @classmethod
    def recurrent_shapes(cls, gguf: GGUFFile, dims: Dims) -> tuple[RecurrentShape | None, ...]:
        """The heads of each recurrent layer, None for one with keys and values."""
        return (None,) * dims.num_layers

    def recurrent_shape(self, layer: int) -> RecurrentShape | None:
        """The heads of a recurrent layer, None for one with keys and values."""
        return None

    def draft_block(self, loader: Loader, dims: Dims, layer: int) -> DraftBlock | None:
        """Claim the block of a NextN head, None if the architecture defines none.

        Args:
            loader: the head's file.
            dims: as that file states them.
            layer: the block's number there.
        """
        return None

    def embed(self, f: Forward) -> None:
        """Record what the tokens put into the residual ``f.x``."""
        f.ops.embed(self.token_embd, f.step, scale=self.embedding_scale, out=f.x)

    @abstractmethod
    def block(self, f: Forward, layer: int) -> None:
        """Record one block over the residual ``f.x``."""
