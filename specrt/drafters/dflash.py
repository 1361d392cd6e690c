"""Block drafters of the ``dflash`` architecture, of all generations: their files."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from specrt.drafters.block_picks import Likeliest, Markov, Picks, Selector
from specrt.drafters.dflash_keys import DFlashKeys
from specrt.drafters.dflash_layer import DFlashLayer
from specrt.drafters.reduced_head import read_names
from specrt.errors import FormatError, MismatchError
from specrt.gguf.reader import GGUFFile
from specrt.models.blocks import Trunk
from specrt.models.loader import Dims, Loader, linear_rope_scale, make_rope, positive
from specrt.ops import Array, Rope, Weight


@dataclass(frozen=True, slots=True)
class DFlashWeights:
    """A drafter's weights, those that it borrows from its target among them.

    Args:
        keys: what the file says.
        dims: likewise.
        rope: of all layers; it covers a block that begins at the context's last position.
        encoder: [D, L D], from the L taps of a row to what the layers' keys and values are of.
        encoder_norm: [D].
        layers: of the block.
        norm: [D], before the head.
        embedding: [V, D].
        output: [Vd, D], the head.
        names: [Vd], the ids that the head's rows stand for; None for themselves.
        picks: from the logits of a block to its ids.
    """

    keys: DFlashKeys
    dims: Dims
    rope: Rope
    encoder: Weight
    encoder_norm: Array
    layers: list[DFlashLayer]
    norm: Array
    embedding: Weight
    output: Weight
    names: np.ndarray | None
    picks: Picks

    @classmethod
    def load(cls, loader: Loader, trunk: Trunk, context: int, num_seqs: int) -> DFlashWeights:
        """Claim all tensors of a file that was checked against the target.

        Args:
            loader: the drafter's file, and whose ops run it.
            trunk: the target's.
            context: positions of a sequence.
            num_seqs: that draft at a time at most.

        Raises:
            MismatchError: the file lacks a tensor, or does not fit the target.
            FormatError: a value is impossible.
            UnsupportedError: it has a tensor or asks for something that is not run.
        """
        gguf = loader.gguf
        dims = Dims.read(gguf, trunk.dims.vocab_size)
        keys, width = DFlashKeys.read(gguf, dims), dims.width
        _check_target(gguf, keys, dims, trunk)
        size = (trunk.dims.vocab_size, width)
        embedding, output = trunk.token_embd, trunk.output
        if loader.has("token_embd.weight"):
            if loader.has("output.weight"):
                embedding = loader.table("token_embd.weight", *size)
            else:
                embedding = output = loader.weight("token_embd.weight", *size)
        names = read_names(loader, trunk.dims.vocab_size)
        if loader.has("output.weight"):
            rows = size[0] if names is None else len(names)
            output = loader.weight("output.weight", rows, width)
        weights = cls(
            keys=keys,
            dims=dims,
            rope=_rope(loader, dims, context + keys.block_size),
            encoder=loader.weight(
                "fc.weight", width, len(keys.target_layers) * width, role="int8x2"
            ),
            encoder_norm=loader.vector("enc.output_norm.weight", width),
            layers=[DFlashLayer.load(loader, dims, keys, i) for i in range(dims.num_layers)],
            norm=loader.vector("output_norm.weight", width),
            embedding=embedding,
            output=output,
            names=names,
            picks=_picks(loader, dims, output, names, num_seqs, keys.num_drafting),
        )
        loader.finish()
        return weights

    @property
    def matrices(self) -> list[Weight]:
        """All that read rows in a forward, but the head."""
        layers = [weight for layer in self.layers for weight in layer.weights]
        return [self.encoder, *layers, *self.picks.weights]


def _rope(loader: Loader, dims: Dims, positions: int) -> Rope:
    """Half-split pairs; sections of a drafter whose target has some turn alike for text.

    Raises:
        FormatError: the sections are impossible, or stand beside divisors.
        MismatchError: no table can be made.
    """
    gguf = loader.gguf
    num_rot = positive(
        gguf, "dflash.rope.dimension_count", default=dims.head_dim, most=dims.head_dim
    )
    key, divisors = "dflash.rope.dimension_sections", None
    sections = gguf.get(key, np.ndarray, np.array([num_rot // 2]))
    if sections.dtype.kind not in "iu" or sections.min() < 0 or sections.sum() != num_rot // 2:
        raise FormatError(
            f"{gguf.path}: {key} = {sections.tolist()}, expected sections of the {num_rot // 2} "
            "pairs that turn"
        )
    if loader.has("rope_freqs.weight"):
        if key in gguf.metadata:
            raise FormatError(
                f"{gguf.path}: both {key} and rope_freqs.weight, expected one of them: convert the "
                "drafter again"
            )
        divisors = loader.tensor("rope_freqs.weight", (num_rot // 2,)).numpy()
    try:
        return make_rope(
            loader.ops,
            base=gguf.get("dflash.rope.freq_base", float, 10000.0),
            num_rot=num_rot,
            context=positions,
            pairing="neox",
            scale=linear_rope_scale(gguf),
            divisors=divisors,
        )
    except MismatchError as error:
        raise MismatchError(f"{gguf.path}: {error}") from None


def _picks(
    loader: Loader,
    dims: Dims,
    output: Weight,
    names: np.ndarray | None,
    num_seqs: int,
    num_rows: int,
) -> Picks:
    """How the file's generation gets from logits to ids."""
    shape = (num_seqs, num_rows, output.shape[0])
    if loader.has("selector_hidden.weight"):
        return Selector.load(loader, dims, shape, names)
    if loader.has("markov_w1.weight"):
        return Markov.load(loader, dims, shape, names)
    return Likeliest(loader.ops, shape, names)


def _check_target(gguf: GGUFFile, keys: DFlashKeys, dims: Dims, trunk: Trunk) -> None:
    """Check what only the loaded target says.

    Raises:
        MismatchError: the drafter was made for another target.
    """
    target = trunk.gguf.path
    if dims.width != trunk.dims.width:
        raise MismatchError(
            f"{gguf.path}: dflash.embedding_length = {dims.width}, but {target} has "
            f"{trunk.dims.width}; take the drafter that was trained for this target"
        )
    if not 0 <= keys.mask_token < trunk.dims.vocab_size:
        raise MismatchError(
            f"{gguf.path}: tokenizer.ggml.mask_token_id = {keys.mask_token}, but {target} has ids "
            f"up to {trunk.dims.vocab_size - 1}; take the drafter that was trained for this target"
        )
    own = (keys.logit_scale, keys.softcap)
    expected = (trunk.logit_scale, trunk.softcap)
    if keys.generation == "DFlash2" and own != expected:
        raise MismatchError(
            f"{gguf.path}: dflash.logit_scale = {own[0]} and final_logit_softcapping = {own[1]}, "
            f"but {target} has {expected[0]} and {expected[1]}: the selector weighs logits of the "
            "target's scale; take the drafter that was trained for this target"
        )
