"""The ``qwen3`` architecture (dense)."""

from __future__ import annotations

from specrt.models.blocks import Forward, PreNormBlock, Trunk
from specrt.models.loader import Loader, linear_rope_scale, make_rope, whole_head_rope


class Qwen3(Trunk):
    """As llama, with q and k normalised per head before rotary on half-split (neox) pairs.

    Source: the model's own definition, as llama.cpp runs it.
    """

    def __init__(self, loader: Loader, context: int) -> None:
        super().__init__(loader, context)
        gguf, dims = loader.gguf, self.dims
        self.rope = make_rope(
            loader.ops,
            base=gguf.get("qwen3.rope.freq_base", float, 10000.0),
            num_rot=whole_head_rope(gguf, dims),
            context=context,
            pairing="neox",
            scale=linear_rope_scale(gguf),
        )
        self.blocks = [
            PreNormBlock.load(loader, dims, i, head_norms=True) for i in range(dims.num_layers)
        ]
        self.weights = [w for block in self.blocks for w in block.weights]

    def block(self, f: Forward, layer: int) -> None:
        """Record one block."""
        self.blocks[layer].record(f, layer, self.dims, self.rope)
