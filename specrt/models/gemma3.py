"""The ``gemma3`` architecture: sliding and global layers, two rotary bases, norms on both sides."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from specrt.errors import FormatError
from specrt.gguf.reader import GGUFFile
from specrt.models.blocks import AttentionWeights, FeedForwardWeights, Forward, Trunk
from specrt.models.loader import (
    MAX_CONTEXT,
    Dims,
    Loader,
    linear_rope_scale,
    make_rope,
    whole_head_rope,
)
from specrt.ops import Array, Weight

MAX_SOFTCAP = 1e30


@dataclass(frozen=True, slots=True)
class Block:
    """The weights of one block; the post norms work on a sub-layer's output."""

    attn_norm: Array
    attention: AttentionWeights
    post_attention_norm: Array
    ffn_norm: Array
    ffn: FeedForwardWeights
    post_ffw_norm: Array

    @classmethod
    def load(cls, loader: Loader, dims: Dims, layer: int) -> Block:
        """Claim ``blk.<layer>.*``."""

        def norm(name: str) -> Array:
            return loader.vector(f"blk.{layer}.{name}.weight", dims.width)

        return cls(
            attn_norm=norm("attn_norm"),
            attention=AttentionWeights.load(loader, dims, layer, head_norms=True),
            post_attention_norm=norm("post_attention_norm"),
            ffn_norm=norm("ffn_norm"),
            ffn=FeedForwardWeights.load(loader, dims, layer),
            post_ffw_norm=norm("post_ffw_norm"),
        )

    @property
    def weights(self) -> tuple[Weight, ...]:
        """All matrices."""
        return *self.attention.weights, *self.ffn.weights


class Gemma3(Trunk):
    """x += rms(attention(rms(x))); x += rms(geglu(rms(x))); embedding times sqrt(D).

    Source: the model's own definition, as llama.cpp runs it.
    """

    def __init__(self, loader: Loader, context: int) -> None:
        super().__init__(loader, context)
        gguf, dims = loader.gguf, self.dims
        num_rot = whole_head_rope(gguf, dims)
        self.global_rope = make_rope(
            loader.ops,
            base=gguf.get("gemma3.rope.freq_base", float, 10000.0),
            num_rot=num_rot,
            context=context,
            pairing="neox",
            scale=linear_rope_scale(gguf),
        )
        self.sliding_rope = make_rope(
            loader.ops,
            base=gguf.get("gemma3.rope.freq_base_swa", float, 10000.0),
            num_rot=num_rot,
            context=context,
            pairing="neox",
        )
        # Only the 27B shape scales queries by the width per head instead of the head dimension.
        per_head = dims.width / dims.heads[0] if dims.num_layers == 62 else dims.head_dim
        self.scale = 1 / math.sqrt(per_head)
        self.blocks = [Block.load(loader, dims, i) for i in range(dims.num_layers)]
        self.weights = [w for block in self.blocks for w in block.weights]
        self.embedding_scale = math.sqrt(dims.width)
        self.softcap = _softcap(gguf)

    @classmethod
    def sliding_windows(cls, gguf: GGUFFile, num_layers: int) -> tuple[int, ...]:
        """The window of each layer, 0 for the global ones.

        Raises:
            FormatError: the window is impossible, or the pattern fits no layers.
        """
        window = gguf.get("gemma3.attention.sliding_window", int, 0)
        if not 0 <= window <= MAX_CONTEXT:
            raise FormatError(
                f"{gguf.path}: gemma3.attention.sliding_window = {window}, expected 0 to "
                f"{MAX_CONTEXT}: convert the model again"
            )
        key = "gemma3.attention.sliding_window_pattern"
        if isinstance(gguf.metadata.get(key), np.ndarray):
            sliding = gguf.get(key, np.ndarray).astype(bool).tolist()
        else:
            pattern = gguf.get(key, int, 6)
            if pattern < 1:
                raise FormatError(f"{gguf.path}: {key} = {pattern}, expected at least 1")
            sliding = [i % pattern != pattern - 1 for i in range(num_layers)]
        if len(sliding) != num_layers:
            raise FormatError(
                f"{gguf.path}: {key} names {len(sliding)} layers, expected {num_layers}"
            )
        return tuple(window if slides else 0 for slides in sliding)

    def block(self, f: Forward, layer: int) -> None:
        """Record one block."""
        block, eps = self.blocks[layer], self.dims.eps
        window = self.windows[layer]
        rope = self.sliding_rope if window else self.global_rope
        rows = f.normed(block.attn_norm, eps)
        attended = block.attention.attend(
            f, rows, layer, self.dims, rope, scale=self.scale, window=window
        )
        f.work.linear(attended, [(block.attention.output, f.h)])
        f.ops.rms_norm(f.h, block.post_attention_norm, eps, out=f.x, add=f.x)
        block.ffn.feed(f, f.normed(block.ffn_norm, eps), "gelu_tanh", f.h)
        f.ops.rms_norm(f.h, block.post_ffw_norm, eps, out=f.x, add=f.x)


def _softcap(gguf: GGUFFile) -> float:
    key = "gemma3.final_logit_softcapping"
    softcap = gguf.get(key, float, 0.0)
    if not 0 <= softcap <= MAX_SOFTCAP:
        raise FormatError(
            f"{gguf.path}: {key} = {softcap}, expected 0 (none) to {MAX_SOFTCAP:.0e}: convert the "
            "model again"
        )
    return softcap
