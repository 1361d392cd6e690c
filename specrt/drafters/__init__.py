"""Trained drafters: what is checked before one is bound to a target."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import numpy as np

from specrt.errors import FormatError, MismatchError, UnsupportedError
from specrt.gguf.reader import GGUFFile
from specrt.gguf.strings import StringArray

WIDTH_KEYS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "dflash": "dflash.embedding_length",
        "eagle3": "eagle3.target_hidden_size",
        "gemma4-assistant": "gemma4-assistant.embedding_length_out",
    }
)
"""By architecture of files that hold only a drafter: the key of its target's width."""

SHARED_KEYS: Final = (
    "attention.key_length",
    "attention.layer_norm_rms_epsilon",
    "rope.dimension_count",
    "rope.freq_base",
    "rope.scaling.factor",
    "rope.scaling.type",
)
"""Of a NextN block alone in its file: what must be its target's, where both say it."""


TARGET_ID: Final = "specrt.target_id"
MODEL_ID: Final = "specrt.model_id"
"""Of a drafter and of its target, where whoever trained them says which belong together."""


def is_nextn_file(file: GGUFFile) -> bool:
    """True if the file holds a NextN block and no trunk."""
    nextn = any(".nextn." in name for name in file.tensors)
    return nextn and "blk.0.attn_norm.weight" not in file.tensors


def check_drafter(target: GGUFFile, drafter: GGUFFile) -> None:
    """Check that ``drafter`` was made for ``target`` and runs here.

    Raises:
        MismatchError: it is no drafter, or one for another target.
        UnsupportedError: it fits, but its kind does not run here yet.
    """
    kind = drafter.architecture
    if kind not in WIDTH_KEYS and not is_nextn_file(drafter):
        raise MismatchError(
            f"{drafter.path}: general.architecture is {kind!r}, expected a drafter "
            f"({', '.join(WIDTH_KEYS)}, or the NextN block of a model alone): pass it as the "
            "model, not as the draft model"
        )
    if kind not in WIDTH_KEYS and kind != target.architecture:
        raise MismatchError(
            f"{drafter.path}: the NextN block of {kind}, but {target.path}: general.architecture = "
            f"{target.architecture!r}; take the drafter that was trained for this target"
        )
    width_key = f"{target.architecture}.embedding_length"
    own_key = WIDTH_KEYS.get(kind, width_key)
    width, expected = drafter.get(own_key, int), target.get(width_key, int)
    if width != expected:
        raise MismatchError(
            f"{drafter.path}: {own_key} = {width}, but {target.path}: {width_key} = {expected}; "
            "take the drafter that was trained for this target"
        )
    _check_target_layers(target, drafter)
    tokens_key = "tokenizer.ggml.tokens"
    tokens, own = (file.get(tokens_key, StringArray, None) for file in (target, drafter))
    if tokens is not None and own is not None and len(tokens) != len(own):
        raise MismatchError(
            f"{drafter.path}: {tokens_key} holds {len(own)} tokens, but {target.path}: "
            f"{tokens_key} holds {len(tokens)}; take the drafter that was trained for this target"
        )
    if tokens is not None and own is None:
        _check_vocab_size(target, drafter, len(tokens))
    trained_for, is_target = drafter.get(TARGET_ID, str, None), target.get(MODEL_ID, str, None)
    if None not in (trained_for, is_target) and trained_for != is_target:
        raise MismatchError(
            f"{drafter.path}: {TARGET_ID} = {trained_for}, but {target.path}: {MODEL_ID} = "
            f"{is_target}; take the drafter that was trained for this target"
        )
    if kind not in WIDTH_KEYS:
        _check_nextn(target, drafter)
    if kind == "dflash" or kind not in WIDTH_KEYS:
        return
    raise UnsupportedError(
        f"{drafter.path}: {kind} drafters do not run here yet; load the target without a draft "
        "model, n-gram drafting needs none"
    )


def _check_target_layers(target: GGUFFile, drafter: GGUFFile) -> None:
    """Check which of the target's residuals the drafter reads.

    Raises:
        FormatError: these are no layers.
        MismatchError: the target has fewer.
    """
    key, blocks_key = f"{drafter.architecture}.target_layers", f"{target.architecture}.block_count"
    layers = drafter.get(key, np.ndarray, None)
    if layers is None:
        return
    if not len(layers) or layers.dtype.kind not in "iu":
        raise FormatError(
            f"{drafter.path}: {key} = {layers.tolist()} ({layers.dtype}), expected the numbers of "
            "layers: convert the drafter again"
        )
    blocks = target.get(blocks_key, int)
    heads = target.get(f"{target.architecture}.nextn_predict_layers", int, 0)
    if not 0 <= layers.min() <= layers.max() <= blocks - heads:
        raise MismatchError(
            f"{drafter.path}: {key} = {layers.tolist()}, but {target.path}: {blocks_key} = "
            f"{blocks}, of which {heads} are draft heads; take the drafter that was trained for "
            "this target"
        )


def _check_vocab_size(target: GGUFFile, drafter: GGUFFile, num_tokens: int) -> None:
    """Check what a drafter without a tokenizer says of its vocabulary.

    Raises:
        MismatchError: the target's has another size.
    """
    key = f"{drafter.architecture}.vocab_size"
    size = drafter.get(key, int, num_tokens)
    if size != num_tokens:
        raise MismatchError(
            f"{drafter.path}: {key} = {size}, but {target.path}: tokenizer.ggml.tokens holds "
            f"{num_tokens}; take the drafter that was trained for this target"
        )


def _check_nextn(target: GGUFFile, drafter: GGUFFile) -> None:
    """Check what a NextN block shares with its target's own blocks.

    Raises:
        MismatchError: the file promises no head, or states another number.
    """
    arch = target.architecture
    key = f"{arch}.nextn_predict_layers"
    if not drafter.get(key, int, 0):
        raise MismatchError(
            f"{drafter.path}: {key} = 0, but there are nextn tensors: convert the drafter again"
        )
    for name in SHARED_KEYS:
        key = f"{arch}.{name}"
        own, expected = drafter.metadata.get(key), target.metadata.get(key)
        if own is not None and expected is not None and own != expected:
            raise MismatchError(
                f"{drafter.path}: {key} = {own}, but {target.path}: {key} = {expected}; take the "
                "drafter that was trained for this target"
            )
