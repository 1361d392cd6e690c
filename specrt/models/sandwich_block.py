"""The block with norms on both sides of its sub-layers, as several architectures have it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from specrt.models.blocks import FeedForwardWeights, Forward
from specrt.models.loader import Dims, Loader
from specrt.ops import Activation, Acts, Array, Rope, Weight


class Attention(Protocol):
    """Attention with its output projection."""

    @property
    def weights(self) -> tuple[Weight, ...]:
        """All matrices."""

    def record(
        self,
        f: Forward,
        rows: Acts,
        layer: int,
        dims: Dims,
        rope: Rope,
        *,
        out: Array,
        scale: float | None,
        window: int,
    ) -> None:
        """Record the projected attention of the prepared rows: see ``AttentionWeights.record``."""


@dataclass(frozen=True, slots=True)
class SandwichBlock:
    """x += rms(attention(rms(x))); x += rms(ffn(rms(x)))."""

    attn_norm: Array
    attention: Attention
    post_attention_norm: Array
    ffn_norm: Array
    ffn: FeedForwardWeights
    post_ffw_norm: Array
    post_eps: float

    @classmethod
    def load(
        cls, loader: Loader, dims: Dims, layer: int, attention: Attention, *, post_eps: float
    ) -> SandwichBlock:
        """Claim ``blk.<layer>.*`` but what the attention has claimed.

        Args:
            post_eps: of the norms behind the sub-layers.
        """

        def norm(name: str) -> Array:
            return loader.vector(f"blk.{layer}.{name}.weight", dims.width)

        return cls(
            attn_norm=norm("attn_norm"),
            attention=attention,
            post_attention_norm=norm("post_attention_norm"),
            ffn_norm=norm("ffn_norm"),
            ffn=FeedForwardWeights.load(loader, dims, layer),
            post_ffw_norm=norm("post_ffw_norm"),
            post_eps=post_eps,
        )

    @property
    def weights(self) -> tuple[Weight, ...]:
        """All matrices."""
        return *self.attention.weights, *self.ffn.weights

    def record(
        self,
        f: Forward,
        layer: int,
        dims: Dims,
        rope: Rope,
        activation: Activation,
        *,
        window: int,
        scale: float | None = None,
    ) -> None:
        """Record the block over the residual ``f.x``; scale and window are the attention's."""
        rows = f.normed(self.attn_norm, dims.eps)
        self.attention.record(f, rows, layer, dims, rope, out=f.h, scale=scale, window=window)
        f.ops.rms_norm(f.h, self.post_attention_norm, self.post_eps, out=f.x, add=f.x)
        self.ffn.feed(f, f.normed(self.ffn_norm, dims.eps), activation, f.h)
        f.ops.rms_norm(f.h, self.post_ffw_norm, self.post_eps, out=f.x, add=f.x)
