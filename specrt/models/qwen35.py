"""The ``qwen35`` architecture (dense): gated delta layers, and full attention every few."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from specrt.errors import FormatError
from specrt.gguf.reader import GGUFFile
from specrt.models.blocks import DraftBlock, FeedForward, FeedForwardWeights, Forward, Trunk
from specrt.models.gated_attention import GatedAttention
from specrt.models.loader import Dims, Loader, linear_rope_scale, make_rope, positive
from specrt.ops import Acts, Array, Rope, Weight
from specrt.state.recurrent import MAX_CONV, RecurrentShape


@dataclass(frozen=True, slots=True)
class GatedDelta:
    """A recurrent mixer: convolution over time, the gated delta rule, a gated norm."""

    qkv: Weight
    gate: Weight
    alpha: Weight
    beta: Weight
    output: Weight
    conv: Array
    dt_bias: Array
    a: Array
    norm: Array
    shape: RecurrentShape

    @classmethod
    def load(cls, loader: Loader, dims: Dims, shape: RecurrentShape, layer: int) -> GatedDelta:
        """Claim ``blk.<layer>.attn_qkv``, ``attn_gate`` and ``ssm_*``."""
        prefix, heads = f"blk.{layer}", shape.value_heads
        inner = heads * shape.value_dim
        alpha, beta = (
            loader.weight(f"{prefix}.ssm_{name}.weight", heads, dims.width, role="int8x2")
            for name in ("alpha", "beta")
        )
        return cls(
            qkv=loader.weight(f"{prefix}.attn_qkv.weight", shape.channels, dims.width),
            gate=loader.weight(f"{prefix}.attn_gate.weight", inner, dims.width),
            alpha=alpha,
            beta=beta,
            output=loader.weight(f"{prefix}.ssm_out.weight", dims.width, inner),
            conv=loader.array(f"{prefix}.ssm_conv1d.weight", (shape.channels, shape.conv_kernel)),
            dt_bias=loader.vector(f"{prefix}.ssm_dt.bias", heads),
            a=loader.vector(f"{prefix}.ssm_a", heads),
            norm=loader.vector(f"{prefix}.ssm_norm.weight", shape.value_dim),
            shape=shape,
        )

    @property
    def weights(self) -> tuple[Weight, ...]:
        """All matrices."""
        return self.qkv, self.gate, self.alpha, self.beta, self.output

    def record(self, f: Forward, rows: Acts, layer: int, dims: Dims) -> None:
        """Record ``x += (rms(delta(conv(qkv))) * silu(gate)) output^T`` of the prepared rows."""
        inner = self.gate.shape[0]
        widths = (self.shape.channels, inner, self.shape.value_heads, self.shape.value_heads, inner)
        u, gate, alpha, beta, o = f.work.outs(f.num_rows, *widths)
        state = f.caches[layer]
        f.ops.linear(
            [(self.qkv, u), (self.gate, gate), (self.alpha, alpha), (self.beta, beta)], rows
        )
        f.ops.causal_conv(u, self.conv, state, f.step, out=u)
        f.ops.gated_delta(
            u, alpha, beta, state, f.step, a=self.a, dt_bias=self.dt_bias, eps=dims.eps, out=o
        )
        heads = o.reshape(-1, self.shape.value_dim)
        f.ops.rms_norm(heads, self.norm, dims.eps, out=heads)
        gated = f.work.acts(f.num_rows, inner)
        f.ops.glu(gate, o, activation="silu", out=None, acts=gated)
        f.ops.linear([(self.output, f.x)], gated, add=f.x)


@dataclass(frozen=True, slots=True)
class Block:
    """x += mixer(rms(x)); x += ffn(rms(x))."""

    attn_norm: Array
    mixer: GatedAttention | GatedDelta
    ffn_norm: Array
    ffn: FeedForward

    @property
    def weights(self) -> tuple[Weight, ...]:
        """All matrices."""
        return *self.mixer.weights, *self.ffn.weights

    def record(self, f: Forward, layer: int, dims: Dims, rope: Rope) -> None:
        """Record the block over the residual ``f.x``."""
        rows = f.normed(self.attn_norm, dims.eps)
        if isinstance(self.mixer, GatedDelta):
            self.mixer.record(f, rows, layer, dims)
        else:
            self.mixer.record(f, rows, layer, dims, rope, out=f.x, add=f.x)
        self.ffn.feed(f, f.normed(self.ffn_norm, dims.eps), "silu", f.x, add=f.x)


class Qwen35(Trunk):
    """Pre-norm blocks of a mixer and SwiGLU; rotary turns a part of each head, half-split pairs.

    Source: the model's own definition, as llama.cpp runs it.
    """

    num_outs = 5
    preferred_num_draft = 3

    def __init__(self, loader: Loader, context: int) -> None:
        super().__init__(loader, context)
        gguf, dims = loader.gguf, self.dims
        arch = gguf.architecture
        self.rope = make_rope(
            loader.ops,
            base=gguf.get(f"{arch}.rope.freq_base", float, 10000.0),
            num_rot=num_rotated(gguf, dims),
            context=context,
            pairing="neox",
            scale=linear_rope_scale(gguf),
        )
        self._shapes = self.recurrent_shapes(gguf, dims)
        self.blocks = [
            self._block(loader, dims, layer, shape) for layer, shape in enumerate(self._shapes)
        ]
        self.weights = [w for block in self.blocks for w in block.weights]
        self.experts = [one for block in self.blocks for one in block.ffn.experts]
        for layer in range(dims.num_layers, dims.num_layers + dims.num_nextn):
            loader.leave(f"blk.{layer}.")  # the draft head's

    @classmethod
    def recurrent_shapes(cls, gguf: GGUFFile, dims: Dims) -> tuple[RecurrentShape | None, ...]:
        """The same heads in all layers but those with full attention."""
        shape = read_shape(gguf)
        return tuple(shape if own else None for own in recurrent_layers(gguf, dims))

    def recurrent_shape(self, layer: int) -> RecurrentShape | None:
        """That of a layer."""
        return self._shapes[layer]

    def _block(self, loader: Loader, dims: Dims, layer: int, shape: RecurrentShape | None) -> Block:
        prefix = f"blk.{layer}"
        mixer = (
            GatedAttention.load_fused(loader, dims, layer)
            if shape is None
            else GatedDelta.load(loader, dims, shape, layer)
        )
        return Block(
            attn_norm=loader.vector(f"{prefix}.attn_norm.weight", dims.width),
            mixer=mixer,
            ffn_norm=loader.vector(f"{prefix}.post_attention_norm.weight", dims.width),
            ffn=self.feed_forward(loader, dims, layer),
        )

    def feed_forward(self, loader: Loader, dims: Dims, layer: int) -> FeedForward:
        """Claim ``blk.<layer>.ffn_*``."""
        return FeedForwardWeights.load(loader, dims, layer)

    def draft_block(self, loader: Loader, dims: Dims, layer: int) -> DraftBlock:
        """One with full attention; it turns by the trunk's rotary table."""
        block = self._block(loader, dims, layer, None)
        assert isinstance(block.mixer, GatedAttention)
        attention = block.mixer.attention

        def remember(f: Forward) -> None:
            rows = f.normed(block.attn_norm, dims.eps)
            attention.remember(f, rows, layer, dims, self.rope)

        return DraftBlock(
            block.weights,
            block.ffn.experts,
            lambda f: block.record(f, layer, dims, self.rope),
            remember,
        )

    def block(self, f: Forward, layer: int) -> None:
        """Record one block."""
        self.blocks[layer].record(f, layer, self.dims, self.rope)


def read_shape(gguf: GGUFFile) -> RecurrentShape:
    """The keys ``<architecture>.ssm.*``.

    Raises:
        MismatchError: one is missing.
        FormatError: they contradict each other.
    """
    key = f"{gguf.architecture}.ssm"
    size, inner = positive(gguf, f"{key}.state_size"), positive(gguf, f"{key}.inner_size")
    groups, heads = positive(gguf, f"{key}.group_count"), positive(gguf, f"{key}.time_step_rank")
    if inner != heads * size or heads % groups:
        raise FormatError(
            f"{gguf.path}: {key}.inner_size = {inner}, time_step_rank = {heads}, state_size = "
            f"{size}, group_count = {groups}; expected inner_size = time_step_rank * state_size, "
            "and time_step_rank a multiple of group_count"
        )
    kernel = positive(gguf, f"{key}.conv_kernel", most=MAX_CONV)
    return RecurrentShape(groups, heads, size, size, kernel)


def recurrent_layers(gguf: GGUFFile, dims: Dims) -> list[bool]:
    """Which layers are recurrent: the file's own list, else all but every n-th.

    Raises:
        FormatError: the list has another length than there are blocks.
    """
    arch, blocks = gguf.architecture, dims.num_layers + dims.num_nextn
    listed = f"{arch}.attention.recurrent_layers"
    if listed not in gguf.metadata:
        interval = positive(gguf, f"{arch}.full_attention_interval", default=4)
        return [(layer + 1) % interval != 0 for layer in range(dims.num_layers)]
    values = gguf.get(listed, np.ndarray)
    if len(values) != blocks:
        raise FormatError(f"{gguf.path}: {listed} has {len(values)} values, expected {blocks}")
    return [bool(value) for value in values[: dims.num_layers]]


def num_rotated(gguf: GGUFFile, dims: Dims) -> int:
    """``rope.dimension_count``; for text all its sections turn by the same position.

    Raises:
        MismatchError: ``rope.dimension_sections`` is missing.
        FormatError: the head has fewer dims, or the sections are other than half of it.
    """
    key = f"{gguf.architecture}.rope.dimension"
    num_rot = positive(gguf, f"{key}_count", default=dims.head_dim, most=dims.head_dim)
    sections = gguf.get(f"{key}_sections", np.ndarray).tolist()
    if 2 * sum(sections) != num_rot:
        raise FormatError(
            f"{gguf.path}: {key}_sections = {sections}, expected a sum of {num_rot // 2}, half of "
            f"{key}_count"
        )
    return num_rot
