"""What a step cannot do without: bytes to read, and products to compute."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from specrt._ext.host_ops import packed_bytes
from specrt.acts import input_form
from specrt.experts import experts_of
from specrt.gguf.reader import GGUFFile, Tensor
from specrt.models import ARCHITECTURES
from specrt.models.loader import Dims
from specrt.ops import KVType
from specrt.reference.kv import encode
from specrt.state.recurrent import RecurrentShape

PARTS = ("trunk", "head", "attention")
UNREAD = frozenset({"rope_freqs.weight"})
"""Read when a model is loaded, and in no step."""


@dataclass(frozen=True, slots=True)
class Rates:
    """What the machine can do in a second: one number, or one for each round."""

    num_bytes: np.ndarray
    int_products: np.ndarray
    float_products: np.ndarray


@dataclass(frozen=True, slots=True)
class Touched:
    """Of a step, or of a part of one.

    Args:
        num_bytes: of weights as the file stores them, and of keys and values as the cache does.
        packed_bytes: the same, but of weights as the host op set packs them.
        int_products: of quantised weights and rows.
        float_products: of other weights, and of attention.
    """

    num_bytes: int = 0
    packed_bytes: int = 0
    int_products: int = 0
    float_products: int = 0

    def __add__(self, other: Touched) -> Touched:
        return Touched(
            self.num_bytes + other.num_bytes,
            self.packed_bytes + other.packed_bytes,
            self.int_products + other.int_products,
            self.float_products + other.float_products,
        )

    def seconds(self, rates: Rates) -> np.ndarray:
        """The longer of reading and computing."""
        computing = self.int_products / rates.int_products
        computing = computing + self.float_products / rates.float_products
        return np.maximum(self.num_bytes / rates.num_bytes, computing)


def touched_by(gguf: GGUFFile, kv_type: KVType, cached: int, rows: int) -> dict[str, Touched]:
    """What a verify of so many rows touches, by part.

    Weights are read once for all rows, of the embedding the rows' own, of experts those that are
    used. Keys and values are read once: those that any row sees, its window considered. Recurrent
    states, which are the trunk's, are read and written once.

    Args:
        cached: tokens before the rows.
    """
    parts = dict.fromkeys(PARTS, Touched())
    for part, touched in _weights(gguf, rows):
        parts[part] += touched
    dims, trunk = Dims.read(gguf), ARCHITECTURES[gguf.architecture]
    windows = trunk.sliding_windows(gguf, dims.num_layers)
    row_bytes = encode(np.zeros((1, 1, dims.head_dim), np.float32), kv_type).nbytes
    ends = cached + 1 + np.arange(rows)
    for layer, shape in enumerate(trunk.recurrent_shapes(gguf, dims)):
        if shape is not None:
            parts["trunk"] += _state(shape, rows)
            continue
        heads, kv_heads, window = dims.heads[layer], dims.kv_heads[layer], windows[layer]
        starts = np.maximum(0, ends - window) if window else np.zeros_like(ends)
        read = 2 * int(ends[-1] - starts[0]) * kv_heads * row_bytes
        parts["attention"] += Touched(
            num_bytes=read,
            packed_bytes=read,
            float_products=2 * int((ends - starts).sum()) * heads * dims.head_dim,
        )
    return parts


def _state(shape: RecurrentShape, rows: int) -> Touched:
    """A row decays the state, reads it, adds to it, and reads it again."""
    size = shape.value_heads * shape.key_dim * shape.value_dim
    return Touched(2 * 4 * size, 2 * 4 * size, float_products=4 * rows * size)


def _weights(gguf: GGUFFile, rows: int) -> Iterator[tuple[str, Touched]]:
    """The part of each tensor, and what is touched of it; a tied head is the embedding.

    Of draft heads behind the trunk nothing is.
    """
    head = "output.weight" if "output.weight" in gguf.tensors else "token_embd.weight"
    dims = Dims.read(gguf)
    unread = tuple(f"blk.{dims.num_layers + number}." for number in range(dims.num_nextn))
    num_used = gguf.get(f"{gguf.architecture}.expert_used_count", int, 0)
    for name, tensor in gguf.tensors.items():
        if name == "token_embd.weight":
            read = rows * tensor.raw.shape[-1]  # the table stays as it is
            yield "trunk", Touched(read, read)
        if name == head:
            yield "head", _read_whole(tensor, rows)
        elif name == "token_embd.weight" or name in UNREAD or name.startswith(unread):
            continue
        elif len(tensor.shape) == 3:
            yield "trunk", _read_experts(tensor, rows, num_used)
        else:
            yield "trunk", _read_whole(tensor, rows)


def _read_experts(tensor: Tensor, rows: int, num_used: int) -> Touched:
    """Of E experts those that rows touch which choose evenly: E (1 - (1 - k / E)^T)."""
    one, count = next(experts_of(tensor)), len(tensor.raw)
    read, products = _read_whole(one, 1), _read_whole(one, rows * num_used)
    touched = count * (1 - (1 - num_used / count) ** rows)
    return replace(
        products,
        num_bytes=round(touched * read.num_bytes),
        packed_bytes=round(touched * read.packed_bytes),
    )


def _read_whole(tensor: Tensor, rows: int) -> Touched:
    """A vector is float32 in memory, and has no products that count."""
    kind, shape = tensor.type.name, tensor.shape
    if len(shape) == 1:
        return Touched(tensor.nbytes, 4 * shape[0])
    packed, products = packed_bytes(kind, input_form(kind, "int8"), shape), rows * math.prod(shape)
    if tensor.type.is_quantized:
        return Touched(tensor.nbytes, packed, int_products=products)
    return Touched(tensor.nbytes, packed, float_products=products)
