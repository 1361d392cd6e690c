"""Attention whose result is gated, as several architectures have it."""

from __future__ import annotations

from dataclasses import dataclass

from specrt.models.blocks import AttentionWeights, Forward
from specrt.models.loader import Dims, Loader
from specrt.ops import Acts, Array, Rope, Weight


@dataclass(frozen=True, slots=True)
class GatedAttention:
    """Attention whose result is gated, element by element, before the output projection."""

    attention: AttentionWeights
    gate: Weight

    @classmethod
    def load(cls, loader: Loader, dims: Dims, layer: int) -> GatedAttention:
        """Claim ``blk.<layer>.attn_*``, with a norm of each head and the gate in ``attn_gate``."""
        rows = dims.heads[layer] * dims.head_dim
        return cls(
            AttentionWeights.load(loader, dims, layer, head_norms=True),
            loader.weight(f"blk.{layer}.attn_gate.weight", rows, dims.width),
        )

    @classmethod
    def load_fused(cls, loader: Loader, dims: Dims, layer: int) -> GatedAttention:
        """Claim ``blk.<layer>.attn_*``; ``attn_q`` has q and gate, head by head."""
        prefix, size = f"blk.{layer}.attn", dims.head_dim
        heads, kv_heads = dims.heads[layer], dims.kv_heads[layer]
        q, gate = loader.interleaved(f"{prefix}_q.weight", heads, (size, size), dims.width)
        k, v = (loader.weight(f"{prefix}_{n}.weight", kv_heads * size, dims.width) for n in "kv")
        output = loader.weight(f"{prefix}_output.weight", dims.width, heads * size)
        norms = (loader.vector(f"{prefix}_{n}_norm.weight", size) for n in "qk")
        return cls(AttentionWeights(q, k, v, output, *norms), gate)

    @property
    def weights(self) -> tuple[Weight, ...]:
        """All matrices."""
        return *self.attention.weights, self.gate

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
        """Record ``out = (attention * sigmoid(gate)) output^T (+ add)`` of T prepared rows.

        See ``AttentionWeights.attend``.
        """
        output = self.attention.output
        gate = f.work.out(4, f.num_rows, output.shape[1])
        attended = self.attention.attend(
            f, rows, layer, dims, rope, scale=scale, window=window, beside=[(self.gate, gate)]
        )
        gated = f.work.acts(f.num_rows, output.shape[1])
        f.ops.glu(gate, attended, activation="sigmoid", out=None, acts=gated)
        f.ops.linear([(output, out)], gated, add=add)
