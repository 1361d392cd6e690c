"""What a draft of a block drafter cannot do without: bytes to read, and products to compute."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, cast

import numpy as np

from specrt.bench.touched import Touched
from specrt.drafters.block_picks import Markov, Selector
from specrt.drafters.dflash import DFlashWeights
from specrt.drafters.dflash_layer import Branch, DFlashLayer
from specrt.host.weights import HostTable, HostWeight
from specrt.ops import Array, KVType
from specrt.reference.kv import encode

ON_DEVICE: Final = ("inject", "block", "head", "top-k", "lattice", "markov")
"""Phases of a draft's program; of the last three those that a file's generation has."""
PICKED: Final = {
    "linear": "lattice",
    "lattice": "lattice",
    "top_k": "top-k",
    "markov_rows": "markov",
    "markov": "markov",
}
"""Ops behind the head."""


@dataclass(frozen=True, slots=True)
class DraftTouched:
    """A draft of one sequence.

    Args:
        phases: of those that read weights or keys what they touch.
        num_bytes: of all together; weights that two phases read count once.
    """

    phases: dict[str, Touched]
    num_bytes: int


def draft_touched(
    weights: DFlashWeights, kv_type: KVType, cached: int, waiting: int
) -> DraftTouched:
    """What injecting rows and a block with all its drafting rows touch.

    Of the embedding that is the anchor's row and the mask's, of a codebook the rows of the anchor
    and of candidates, of keys and values those that any row sees. A chain of rows, each biased by
    the id before it, reads all its biases once a row. Logits, and taps on their way from the
    target, are not counted. Rows of two int8 terms take two products a weight.

    Args:
        weights: on the host.
        cached: tokens before the block.
        waiting: rows that are injected.
    """
    size = weights.keys.block_size
    num_drafting = weights.keys.num_drafting
    remembered = _sum(_matrix(m, 0) for layer in weights.layers for m in _remembering(layer))
    embedding = 2 * _row_bytes(weights.embedding)
    block = Touched(embedding, embedding) + _vectors(weights.norm)
    block += _sum(_matrix(m, size) for layer in weights.layers for m in layer.weights)
    block += _sum(_layer_vectors(layer) for layer in weights.layers)
    block += _sum(_seen(weights, kv_type, i, cached) for i in range(len(weights.layers)))
    inject = _matrix(weights.encoder, waiting) + _vectors(weights.encoder_norm)
    inject += _sum(_matrix(m, waiting) for layer in weights.layers for m in _remembering(layer))
    phases = {"inject": inject, "block": block, "head": _matrix(weights.output, num_drafting)}
    phases |= _picks(weights, num_drafting)
    whole = sum(phase.num_bytes for phase in phases.values()) - remembered.num_bytes
    return DraftTouched(phases, whole)


def phase_ops(ops: Iterable[tuple[str, float]]) -> dict[tuple[str, str], tuple[int, float]]:
    """How often and how long each op ran in each phase of a draft's program.

    The block begins with its embedding, the picking behind the head.

    Args:
        ops: (an op, its seconds) in the order in which they ran.
    """
    found: dict[tuple[str, str], tuple[int, float]] = {}
    phase = "inject"
    for op, seconds in ops:
        if op in ("embed", "head"):
            phase = "block" if op == "embed" else "head"
        elif phase in PICKED.values() or (phase == "head" and op != "head_reduce"):
            phase = PICKED[op]
        count, before = found.get((phase, op), (0, 0.0))
        found[phase, op] = count + 1, before + seconds
    return found


def _picks(weights: DFlashWeights, num_rows: int) -> dict[str, Touched]:
    """Of the lattice or the chain behind the head."""
    picks = weights.picks
    if isinstance(picks, Markov):
        biases = _matrix(picks.tables["successor"], 1)
        row = Touched(*[_row_bytes(picks.tables["predecessor"])] * 2)
        return {"markov": _sum([biases, row] * num_rows)}
    if isinstance(picks, Selector):
        k, rank = picks.candidates.ids.shape[1], picks.tables["predecessor"].shape[1]
        before = (1 + k * (num_rows - 1)) * _row_bytes(picks.tables["predecessor"])
        read = before + k * num_rows * _row_bytes(picks.tables["successor"])
        pairs = rank * (k + k * k * (num_rows - 1))
        gate = _sum(_matrix(weight, num_rows) for weight in picks.weights)
        return {"lattice": gate + Touched(read, read, float_products=pairs)}
    return {}


def _seen(weights: DFlashWeights, kv_type: KVType, layer: int, cached: int) -> Touched:
    """Keys and values that the block sees, its own among them."""
    dims, keys = weights.dims, weights.keys
    window, rows = keys.windows[layer], cached + np.arange(keys.block_size)
    starts = np.maximum(0, rows + 1 - window) if window else np.zeros_like(rows)
    ends = rows + 1 if keys.causal else np.full_like(rows, rows[-1] + 1)
    row_bytes = encode(np.zeros((1, 1, dims.head_dim), np.float32), kv_type).nbytes
    read = 2 * int(ends[-1] - starts[0]) * dims.kv_heads[layer] * row_bytes
    scores = int((ends - starts).sum()) * dims.heads[layer]
    return Touched(read, read, float_products=2 * scores * dims.head_dim)


def _remembering(layer: DFlashLayer) -> list[Any]:
    """The projections that injected rows take."""
    attention = layer.attention
    return [attention.k, *([] if attention.v is None else [attention.v])]


def _layer_vectors(layer: DFlashLayer) -> Touched:
    attention = layer.attention
    read = _vectors(layer.sinks, attention.q_norm, attention.k_norm)
    return read + _around(layer.around_attention) + _around(layer.around_ffn)


def _around(branch: Branch) -> Touched:
    base = None if branch.conv is None else branch.conv.base
    return _vectors(branch.norm, branch.post_norm, base)


def _matrix(weight: Any, rows: int) -> Touched:
    """All of it, for so many rows."""
    own = cast(HostWeight, weight)
    num_bytes, packed = own.raw.nbytes, own.tiles.nbytes
    products = rows * own.shape[0] * own.shape[1]
    if own.form == "f32":
        return Touched(num_bytes, packed, float_products=products)
    return Touched(num_bytes, packed, int_products=products * (2 if own.form == "int8x2" else 1))


def _row_bytes(table: Any) -> int:
    return int(cast(HostTable, table).raw.shape[-1])


def _vectors(*arrays: Array | None) -> Touched:
    read = sum(array.nbytes for array in arrays if array is not None)
    return Touched(read, read)


def _sum(parts: Iterable[Touched]) -> Touched:
    return sum(parts, Touched())
