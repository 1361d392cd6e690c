"""The ``muse-glimmer`` architecture: sliding layers turn, full ones do not; gated attention."""

from __future__ import annotations

from specrt.errors import FormatError
from specrt.gguf.reader import GGUFFile
from specrt.models.blocks import Forward, Trunk
from specrt.models.gated_attention import GatedAttention
from specrt.models.loader import (
    MAX_CONTEXT,
    Loader,
    linear_rope_scale,
    logit_softcap,
    make_rope,
    no_rope,
    positive,
    sliding_windows,
)
from specrt.models.sandwich_block import SandwichBlock

POST_EPS = 1e-8
"""Of the norms behind the sub-layers, whatever the file's own is."""

LOGIT_SCALES = (1e-30, 1e30)


class MuseGlimmer(Trunk):
    """x += rms(gated attention(rms(x))); x += rms(swiglu(rms(x))); the embedding is normed.

    Full layers have no rotary at all. The logits are ``c tanh(s l / c)``.

    Source: the model's own definition, as llama.cpp runs it.
    """

    num_outs = 5

    def __init__(self, loader: Loader, context: int) -> None:
        loader.gguf.require_tensor("output.weight")  # never tied
        super().__init__(loader, context)
        gguf, dims, key = loader.gguf, self.dims, loader.gguf.architecture
        base = gguf.get(f"{key}.rope.freq_base", float, 10000.0)
        sliding = make_rope(
            loader.ops,
            base=gguf.get(f"{key}.rope.freq_base_swa", float, base),
            num_rot=positive(
                gguf, f"{key}.rope.dimension_count", default=dims.head_dim, most=dims.head_dim
            ),
            context=context,
            pairing="interleaved",
            scale=linear_rope_scale(gguf),
        )
        full = no_rope(loader.ops, context)
        self.ropes = [sliding if window else full for window in self.windows]
        self.blocks = [
            SandwichBlock.load(
                loader, dims, i, GatedAttention.load(loader, dims, i), post_eps=POST_EPS
            )
            for i in range(dims.num_layers)
        ]
        self.weights = [w for block in self.blocks for w in block.weights]
        self.logit_scale = _logit_scale(gguf)
        self.softcap = logit_softcap(gguf, 30.0)

    @classmethod
    def sliding_windows(cls, gguf: GGUFFile, num_layers: int) -> tuple[int, ...]:
        """The window of each layer, 0 for the full ones, which is every fourth without a pattern.

        Raises:
            MismatchError: the window is missing.
            FormatError: it is impossible, or the pattern fits no layers.
        """
        key = f"{gguf.architecture}.attention.sliding_window"
        window = positive(gguf, key, most=MAX_CONTEXT)
        return sliding_windows(gguf, num_layers, window=window, period=4)

    def embed(self, f: Forward) -> None:
        """Record the normed rows of the tokens."""
        super().embed(f)
        f.ops.rms_norm(f.x, None, self.dims.eps, out=f.x)

    def block(self, f: Forward, layer: int) -> None:
        """Record one block."""
        self.blocks[layer].record(
            f, layer, self.dims, self.ropes[layer], "silu", window=self.windows[layer]
        )


def _logit_scale(gguf: GGUFFile) -> float:
    key = f"{gguf.architecture}.logit_scale"
    scale, (least, most) = gguf.get(key, float), LOGIT_SCALES
    if not least <= scale <= most:
        raise FormatError(
            f"{gguf.path}: {key} = {scale}, expected {least:.0e} to {most:.0e}: convert the model "
            "again"
        )
    return scale
