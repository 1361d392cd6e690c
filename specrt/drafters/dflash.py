"""Block drafters of the ``dflash`` architecture, of all generations: their files."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from specrt.drafters.block_picks import Likeliest, Markov, Picks, Selector
from specrt.drafters.dflash_layer import DFlashLayer
from specrt.errors import FormatError, MismatchError, UnsupportedError
from specrt.gguf.reader import GGUFFile
from specrt.models.blocks import Trunk
from specrt.models.loader import (
    MAX_CONTEXT,
    Dims,
    Loader,
    linear_rope_scale,
    make_rope,
    positive,
)
from specrt.ops import Activation, Array, Rope, Weight
from specrt.options import MAX_DRAFT

ACTIVATIONS: dict[str, Activation] = {
    "silu": "silu",
    "gelu": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
}


@dataclass(frozen=True, slots=True)
class DFlashKeys:
    """What a drafter's file says beside the hyperparameters that all architectures share.

    Args:
        block_size: B, rows of a block.
        target_layers: the target's residuals that it reads, those entering these layers, in order.
        mask_token: the id in the rows behind the anchor.
        causal: whether a row of the block does not see those behind it.
        windows: the sliding window of each layer, 0 for all keys.
        embedding_scale: multiplies the embedding rows.
        attention_scale: of the scores.
        value_scale: multiplies what each attention adds.
        activation: of the feed-forwards.
        samples_anchor: the anchor's row drafts too (DSpark).
        logit_scale, softcap: of the logits (DFlash2).
    """

    block_size: int
    target_layers: tuple[int, ...]
    mask_token: int
    causal: bool
    windows: tuple[int, ...]
    embedding_scale: float
    attention_scale: float
    value_scale: float
    activation: Activation
    samples_anchor: bool
    logit_scale: float
    softcap: float

    @classmethod
    def read(cls, gguf: GGUFFile, dims: Dims) -> DFlashKeys:
        """Read and check the keys ``dflash.*``.

        Raises:
            MismatchError: a required key is missing.
            FormatError: a value is impossible.
            UnsupportedError: the block is longer than a draft can be.
        """
        name = gguf.get("dflash.hidden_activation", str, "silu")
        if name not in ACTIVATIONS:
            raise UnsupportedError(
                f"{gguf.path}: dflash.hidden_activation = {name!r}, expected one of "
                f"{', '.join(ACTIVATIONS)}"
            )
        markov = "markov_w1.weight" in gguf.tensors
        samples_anchor = markov and gguf.get("dflash.sample_from_anchor", bool, True)
        selects = "selector_hidden.weight" in gguf.tensors
        return cls(
            block_size=_block_size(gguf, samples_anchor),
            target_layers=_target_layers(gguf),
            mask_token=gguf.get("tokenizer.ggml.mask_token_id", int),
            causal=gguf.get("dflash.attention.causal", bool, False),
            windows=sliding_windows(gguf, dims.num_layers),
            embedding_scale=_factor(gguf, "dflash.embedding_scale", 1.0),
            attention_scale=_factor(gguf, "dflash.attention.scale", 1 / math.sqrt(dims.head_dim)),
            value_scale=_factor(gguf, "dflash.attention.value_scale", 1.0),
            activation=ACTIVATIONS[name],
            samples_anchor=samples_anchor,
            logit_scale=_factor(gguf, "dflash.logit_scale", 1.0) if selects else 1.0,
            softcap=_factor(gguf, "dflash.final_logit_softcapping", 0.0) if selects else 0.0,
        )


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
    def load(cls, gguf: GGUFFile, trunk: Trunk, context: int, num_seqs: int) -> DFlashWeights:
        """Claim all tensors of a file that was checked against the target.

        Args:
            gguf: the drafter's file.
            trunk: the target's.
            context: positions of a sequence.
            num_seqs: that draft at a time at most.

        Raises:
            MismatchError: the file lacks a tensor, or does not fit the target.
            FormatError: a value is impossible.
            UnsupportedError: it has a tensor or asks for something that is not run.
        """
        loader, dims = Loader(gguf, trunk.ops), Dims.read(gguf, trunk.dims.vocab_size)
        keys, width = DFlashKeys.read(gguf, dims), dims.width
        _check_target(gguf, keys, dims, trunk)
        size = (trunk.dims.vocab_size, width)
        embedding, output = trunk.token_embd, trunk.output
        if loader.has("token_embd.weight"):
            tied = not loader.has("output.weight")
            embedding = loader.weight("token_embd.weight", *size)
            output = embedding if tied else output
        names = _names(loader, trunk.dims.vocab_size)
        if loader.has("output.weight"):
            rows = size[0] if names is None else len(names)
            output = loader.weight("output.weight", rows, width)
        rows = keys.block_size - (0 if keys.samples_anchor else 1)
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
            picks=_picks(loader, dims, output, names, num_seqs, rows),
        )
        loader.finish()
        return weights

    @property
    def matrices(self) -> list[Weight]:
        """All that read rows in a forward, but the head."""
        layers = [weight for layer in self.layers for weight in layer.weights]
        return [self.encoder, *layers, *self.picks.weights]


def sliding_windows(gguf: GGUFFile, num_layers: int) -> tuple[int, ...]:
    """The window of each layer, 0 for all keys.

    Raises:
        MismatchError: one of the two keys is missing.
        FormatError: a value is impossible.
    """
    key = "dflash.attention.sliding_window"
    pattern = f"{key}_pattern"
    if key not in gguf.metadata and pattern not in gguf.metadata:
        return (0,) * num_layers
    window = positive(gguf, key, most=MAX_CONTEXT)
    slides = gguf.get(pattern, np.ndarray)
    if len(slides) != num_layers:
        raise FormatError(f"{gguf.path}: {pattern} names {len(slides)} layers, not {num_layers}")
    return tuple(window if sliding else 0 for sliding in slides.tolist())


def _block_size(gguf: GGUFFile, samples_anchor: bool) -> int:
    most = MAX_DRAFT if samples_anchor else MAX_DRAFT + 1
    size = positive(gguf, "dflash.block_size")
    if not (1 if samples_anchor else 2) <= size <= most:
        raise UnsupportedError(f"{gguf.path}: dflash.block_size = {size}, expected 2 to {most}")
    return size


def _target_layers(gguf: GGUFFile) -> tuple[int, ...]:
    layers = tuple(gguf.get("dflash.target_layers", np.ndarray).tolist())
    if not layers or len(set(layers)) != len(layers):
        raise FormatError(
            f"{gguf.path}: dflash.target_layers = {list(layers)}, expected different layers"
        )
    return layers


def _factor(gguf: GGUFFile, key: str, default: float) -> float:
    value = gguf.get(key, float, default)
    if not (math.isfinite(value) and abs(value) <= 1e30):
        raise FormatError(f"{gguf.path}: {key} = {value}, expected a number within 1e30")
    return value


def _rope(loader: Loader, dims: Dims, positions: int) -> Rope:
    """Half-split pairs; sections of a drafter whose target has some turn alike for text."""
    gguf = loader.gguf
    count = "dflash.rope.dimension_count"
    num_rot = positive(gguf, count, default=dims.head_dim, most=dims.head_dim)
    divisors = None
    if loader.has("rope_freqs.weight"):
        divisors = loader.tensor("rope_freqs.weight", (num_rot // 2,)).numpy()
    return make_rope(
        loader.ops,
        base=gguf.get("dflash.rope.freq_base", float, 10000.0),
        num_rot=num_rot,
        context=positions,
        pairing="neox",
        scale=linear_rope_scale(gguf),
        divisors=divisors,
    )


def _names(loader: Loader, vocab_size: int) -> np.ndarray | None:
    """``d2t``: the target's id of each row of a reduced head.

    Raises:
        FormatError: these are no ids of the target.
    """
    if not loader.has("d2t"):
        return None
    path, size = loader.gguf.path, loader.gguf.tensors["d2t"].shape
    names = np.array(loader.tensor("d2t", size).numpy())
    if names.ndim != 1 or names.dtype.kind != "i" or not len(names):
        raise FormatError(f"{path}: d2t is {names.dtype} {names.shape}, expected a list of ids")
    if not 0 <= names.min() <= names.max() < vocab_size:
        raise FormatError(
            f"{path}: d2t has ids from {names.min()} to {names.max()}, expected 0 to "
            f"{vocab_size - 1}"
        )
    if "output.weight" not in loader.gguf.tensors:
        raise MismatchError(f"{path}: d2t without output.weight: it names the rows of such a head")
    return names.astype(np.int32)


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
    if "selector_hidden.weight" in gguf.tensors and own != expected:
        raise MismatchError(
            f"{gguf.path}: dflash.logit_scale = {own[0]} and final_logit_softcapping = {own[1]}, "
            f"but {target} has {expected[0]} and {expected[1]}: the selector weighs logits of the "
            "target's scale; take the drafter that was trained for this target"
        )
