"""The ``gemma3`` architecture: sliding and global layers, two rotary bases, norms on both sides."""

from __future__ import annotations

import math

from specrt.errors import FormatError
from specrt.gguf.reader import GGUFFile
from specrt.models.blocks import AttentionWeights, Forward, Trunk
from specrt.models.loader import (
    MAX_CONTEXT,
    Loader,
    linear_rope_scale,
    logit_softcap,
    make_rope,
    sliding_windows,
    whole_head_rope,
)
from specrt.models.sandwich_block import SandwichBlock


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
        self.blocks = [
            SandwichBlock.load(
                loader,
                dims,
                i,
                AttentionWeights.load(loader, dims, i, head_norms=True),
                post_eps=dims.eps,
            )
            for i in range(dims.num_layers)
        ]
        self.weights = [w for block in self.blocks for w in block.weights]
        self.embedding_scale = math.sqrt(dims.width)
        self.softcap = logit_softcap(gguf)

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
        return sliding_windows(gguf, num_layers, window=window, period=6)

    def block(self, f: Forward, layer: int) -> None:
        """Record one block."""
        window = self.windows[layer]
        rope = self.sliding_rope if window else self.global_rope
        self.blocks[layer].record(
            f, layer, self.dims, rope, "gelu_tanh", scale=self.scale, window=window
        )
