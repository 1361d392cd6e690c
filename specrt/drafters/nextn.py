"""NextN heads: one block that reads the embedding of a token beside the hidden row before it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from specrt.gguf.reader import GGUFFile
from specrt.models.blocks import DraftBlock, Trunk
from specrt.models.loader import Dims, Loader
from specrt.ops import Array, Weight
from specrt.state.messages import DRAFT_HEAD, Declined


@dataclass(frozen=True, slots=True)
class NextNWeights:
    """What a NextN block has beside attention and feed-forward.

    Args:
        layer: its number in the file.
        dims: the file's.
        embedding_norm, hidden_norm: [D], of the two halves of its input.
        projection: [D, 2 D].
        block: attention and feed-forward.
        norm: [D], before the head and of the hidden row that the next pass reads.
        embedding: [V, D], the target's unless the file brings its own.
        output: [V, D] likewise, or of some ids only.
        ids: which those are, ascending; None for all.
    """

    layer: int
    dims: Dims
    embedding_norm: Array
    hidden_norm: Array
    projection: Weight
    block: DraftBlock
    norm: Array
    embedding: Weight
    output: Weight
    ids: np.ndarray | None

    @classmethod
    def load(
        cls, loader: Loader, trunk: Trunk, dims: Dims, ids: np.ndarray | None
    ) -> NextNWeights | None:
        """Claim the last block; None if the target's architecture defines no such head.

        Args:
            loader: the head's file.
            trunk: the target's.
            dims: as the head's file states them.
            ids: those that it drafts, ascending; None for all.

        Raises:
            MismatchError: the file lacks a tensor, or one has another shape.
            UnsupportedError: the block has tensors that no NextN block has.
        """
        layer, width = dims.num_layers, trunk.dims.width
        prefix, size = f"blk.{layer}.", (trunk.dims.vocab_size, width)
        block = trunk.draft_block(loader, dims, layer)
        if block is None:
            return None
        nextn = f"{prefix}nextn."
        norm, embedding, output = (
            found if loader.has(found := f"{nextn}{name}.weight") else None
            for name in ("shared_head_norm", "embed_tokens", "shared_head_head")
        )
        weights = cls(
            layer=layer,
            dims=dims,
            embedding_norm=loader.vector(f"{nextn}enorm.weight", width),
            hidden_norm=loader.vector(f"{nextn}hnorm.weight", width),
            projection=loader.weight(f"{nextn}eh_proj.weight", width, 2 * width, role="int8x2"),
            block=block,
            norm=loader.vector(norm, width) if norm else trunk.output_norm,
            embedding=loader.table(embedding, *size) if embedding else trunk.token_embd,
            output=_output(loader, output, trunk, ids),
            ids=ids,
        )
        for name in ("token_embd.weight", "output.weight", "output_norm.weight"):
            loader.leave(name)  # the target's are used
        loader.finish("" if loader.gguf is not trunk.gguf else prefix)
        return weights


def _output(loader: Loader, own: str | None, trunk: Trunk, ids: np.ndarray | None) -> Weight:
    """The head's own LM head or the target's, whole or of some ids."""
    size = (trunk.dims.vocab_size, trunk.dims.width)
    if ids is None:
        return loader.weight(own, *size) if own else trunk.output
    if own:
        return loader.rows(own, ids, *size)
    target = Loader(trunk.gguf, trunk.ops)
    name = "output.weight" if target.has("output.weight") else "token_embd.weight"
    return target.rows(name, ids, *size)


def load_weights(
    gguf: GGUFFile, trunk: Trunk, ids: np.ndarray | None = None
) -> NextNWeights | Declined | None:
    """The weights of a file's NextN head, None if it promises none.

    Args:
        gguf: the target's file, or one of a head that was checked against it.
        trunk: the target's.
        ids: those that the head drafts, ascending; None for all.

    Raises:
        MismatchError, UnsupportedError: a tensor is missing, has another shape, or is one too many.
    """
    dims = Dims.read(gguf)
    if not dims.num_nextn:
        return None
    key = f"{gguf.path}: {gguf.architecture}.nextn_predict_layers = {dims.num_nextn}"
    if dims.num_nextn > 1:
        return Declined(DRAFT_HEAD, f"{key}, expected 1: heads of more blocks are not run")
    if not any(name.startswith(f"blk.{dims.num_layers}.nextn.") for name in gguf.tensors):
        return Declined(DRAFT_HEAD, f"{key}, but blk.{dims.num_layers}.nextn.* are not in the file")
    weights = NextNWeights.load(Loader(gguf, trunk.ops), trunk, dims, ids)
    if weights is None:
        return Declined(DRAFT_HEAD, f"{key}: heads of that architecture are not run")
    return weights
