"""The ``llama`` architecture: also Mistral, TinyLlama and SmolLM2 files."""

from __future__ import annotations

from specrt.models.blocks import Forward, PreNormBlock, Trunk
from specrt.models.loader import Loader, linear_rope_scale, make_rope, whole_head_rope


class Llama(Trunk):
    """x += attention(rms(x)); x += swiglu(rms(x)); rotary on interleaved pairs.

    Source: the model's own definition, as llama.cpp runs it.
    """

    def __init__(self, loader: Loader, context: int) -> None:
        super().__init__(loader, context)
        gguf, dims = loader.gguf, self.dims
        num_rot = whole_head_rope(gguf, dims)
        divisors = None
        if loader.has("rope_freqs.weight"):
            divisors = loader.tensor("rope_freqs.weight", (num_rot // 2,)).numpy()
        self.rope = make_rope(
            loader.ops,
            base=gguf.get("llama.rope.freq_base", float, 10000.0),
            num_rot=num_rot,
            context=context,
            pairing="interleaved",
            scale=linear_rope_scale(gguf),
            divisors=divisors,
        )
        self.blocks = [
            PreNormBlock.load(loader, dims, i, head_norms=False) for i in range(dims.num_layers)
        ]
        self.weights = [w for block in self.blocks for w in block.weights]

    def block(self, f: Forward, layer: int) -> None:
        """Record one block."""
        self.blocks[layer].record(f, layer, self.dims, self.rope)
