"""The metadata of ``dflash`` files: which generation one is, and its hyperparameters."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from specrt.errors import FormatError, MismatchError, UnsupportedError
from specrt.gguf.reader import GGUFFile
from specrt.models.loader import MAX_CONTEXT, Dims, positive
from specrt.ops import Activation
from specrt.options import MAX_DRAFT

Generation = Literal["DFlash", "DFlash2", "DSpark"]

MAX_TAPS = 16
"""Residuals that are joined at a time."""

ANCHOR: Final = "dflash.sample_from_anchor"
CONFIDENCE: Final = "dflash.has_confidence_head"
SELECTOR_KEYS: Final = ("dflash.selector_rank", "dflash.selector_top_k")
CONV_KEYS: Final = ("dflash.conv_kernel_size", "dflash.conv_group_size")

ACTIVATIONS: dict[str, Activation] = {
    "silu": "silu",
    "gelu": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
}


@dataclass(frozen=True, slots=True)
class DFlashKeys:
    """What a drafter's file says beside the hyperparameters that all architectures share.

    Args:
        generation: how ids are picked.
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

    generation: Generation
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

    @property
    def num_drafting(self) -> int:
        """Rows of a block that draft: all, or all but the anchor's."""
        return self.block_size if self.samples_anchor else self.block_size - 1

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
        generation = read_generation(gguf)
        samples_anchor = generation == "DSpark" and gguf.get(ANCHOR, bool, True)
        selects = generation == "DFlash2"
        check_convolutions(gguf, dims.num_layers)
        return cls(
            generation=generation,
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


def read_generation(gguf: GGUFFile) -> Generation:
    """Which generation of block drafters a file is, as its tensors say, and its keys no less.

    Raises:
        FormatError: it is of two.
        MismatchError: its keys promise tensors that are not there, or the other way round.
    """
    selects, biases = (
        name in gguf.tensors for name in ("selector_hidden.weight", "markov_w1.weight")
    )
    if selects and biases:
        raise FormatError(
            f"{gguf.path}: both selector_hidden.weight and markov_w1.weight, expected one of them: "
            "a drafter is DFlash2 or DSpark"
        )
    _check_promises(gguf, SELECTOR_KEYS, "selector_hidden.weight")
    if biases:
        promised, there = gguf.get(CONFIDENCE, bool, True), "conf_proj.weight" in gguf.tensors
        if promised != there:
            raise MismatchError(
                f"{gguf.path}: {CONFIDENCE} = {promised} (true where it is missing), but "
                f"conf_proj.weight is {'there' if there else 'missing'}: convert the drafter again"
            )
        return "DSpark"
    for key in (ANCHOR, CONFIDENCE):
        if gguf.get(key, bool, False):
            raise MismatchError(
                f"{gguf.path}: {key} = True, but tensor 'markov_w1.weight' is missing: convert the "
                "drafter again"
            )
    return "DFlash2" if selects else "DFlash"


def check_convolutions(gguf: GGUFFile, num_layers: int) -> None:
    """Check that convolutions stand around every attention and feed-forward, or none.

    Raises:
        MismatchError: keys or tensors are missing.
    """
    names = [f"blk.{i}.{side}_conv_base" for i in range(num_layers) for side in ("attn", "ffn")]
    there = [name for name in names if name in gguf.tensors]
    _check_promises(gguf, CONV_KEYS, there[0] if there else names[0])
    if there and len(there) < len(names):
        missing = next(name for name in names if name not in there)
        raise MismatchError(
            f"{gguf.path}: tensor {missing!r} is missing, but {there[0]!r} is there: convolutions "
            "stand around all attentions and feed-forwards; convert the drafter again"
        )


def _check_promises(gguf: GGUFFile, keys: tuple[str, ...], tensor: str) -> None:
    there = tensor in gguf.tensors
    for key in keys:
        if (key in gguf.metadata) != there:
            has, lacks = (tensor, key) if there else (key, tensor)
            raise MismatchError(
                f"{gguf.path}: {lacks} is missing, but {has} is there: convert the drafter again"
            )


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
    if len(slides) != num_layers or slides.dtype.kind != "b":
        raise FormatError(
            f"{gguf.path}: {pattern} holds {len(slides)} {slides.dtype} values, expected a bool "
            f"for each of {num_layers} layers"
        )
    return tuple(window if sliding else 0 for sliding in slides.tolist())


def _block_size(gguf: GGUFFile, samples_anchor: bool) -> int:
    least = 1 if samples_anchor else 2
    most = MAX_DRAFT + least - 1
    size = positive(gguf, "dflash.block_size")
    if not least <= size <= most:
        raise UnsupportedError(
            f"{gguf.path}: dflash.block_size = {size}, expected {least} to {most}"
        )
    return size


def _target_layers(gguf: GGUFFile) -> tuple[int, ...]:
    key = "dflash.target_layers"
    layers = gguf.get(key, np.ndarray).tolist()
    if not 1 <= len(layers) <= MAX_TAPS or len(set(layers)) != len(layers):
        raise FormatError(
            f"{gguf.path}: {key} = {layers}, expected 1 to {MAX_TAPS} different layers"
        )
    return tuple(layers)


def _factor(gguf: GGUFFile, key: str, default: float) -> float:
    value = gguf.get(key, float, default)
    if not (math.isfinite(value) and abs(value) <= 1e30):
        raise FormatError(f"{gguf.path}: {key} = {value}, expected a number within 1e30")
    return value
