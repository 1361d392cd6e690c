"""The model and its drafter as files without data: keys, and tensors with shapes and types.

Shape of Qwen3.8-27B: its config as LoongForge PR 176 and larql PR 275 quote it. Of its DFlash2
drafter, z-lab/Qwen3.8-27B-DFlash2: its config as rMLX issue 502 and MTPLX PR 304 quote it; taps
are behind layers 5, 19, 33, 47 and 61. Types: what llama.cpp's quantiser chooses for Q4_K_M.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from specrt.gguf.reader import GGUFFile, Tensor
from specrt.gguf.types import TENSOR_TYPES
from tools.make_random_model import (
    MASK,
    VOCABULARY,
    Matrix,
    Shape,
    drafter_keys,
    drafter_matrices,
    drafter_vectors,
    target_keys,
    target_matrices,
    target_vectors,
)

QWEN_27B: Final = Shape(5120, 17408, 64, 24, 4, 256, 64, 16, 48, 128)
TAPS: Final = (6, 20, 34, 48, 62)
"""The residuals entering these layers."""
PUBLISHED_TARGET, PUBLISHED_DRAFTER = 17_106_773_984, 1_138_229_248
"""Bytes: unsloth's Qwen3.8-27B-Q4_K_M.gguf, which has no NextN layer and types of its own choice,
and z-lab's Qwen3.8-27B-DFlash2-Q4_K_M.gguf."""

TYPES = {kind.name: kind for kind in TENSOR_TYPES}
MORE_BITS = re.compile(r"blk\.(\d+)\.(?:attn_v|attn_qkv|ffn_down)\.weight")


class PaperFile(GGUFFile):
    """A file whose tensors are zeros that take no memory.

    Args:
        architecture: ``general.architecture``.
        keys: metadata, without the architecture's name before them.
        tensors: name, shape and type.
    """

    def __init__(
        self,
        architecture: str,
        keys: dict[str, Any],
        tensors: Iterable[tuple[str, tuple[int, ...], str]],
    ) -> None:
        self.path = Path(f"{architecture}.gguf")
        self.metadata = MappingProxyType(
            {
                "general.architecture": architecture,
                "tokenizer.ggml.mask_token_id": MASK,
                **{f"{architecture}.{name}": _value(value) for name, value in keys.items()},
            }
        )
        self.tensors = MappingProxyType({one[0]: _tensor(*one) for one in tensors})

    def forget(self, name: str) -> None:
        """Nothing is held."""

    @property
    def num_bytes(self) -> int:
        """Of all tensors."""
        return sum(tensor.nbytes for tensor in self.tensors.values())


def _value(value: Any) -> Any:
    return np.array(value) if isinstance(value, list) else value


def _tensor(name: str, shape: tuple[int, ...], kind: str) -> Tensor:
    row = (*shape[:-1], TYPES[kind].row_bytes(shape[-1]))
    return Tensor(name, shape, TYPES[kind], np.broadcast_to(np.uint8(0), row))


def q4_k_m(name: str, num_layers: int) -> str:
    """A matrix's type by llama.cpp's rule (``llama_tensor_get_type_impl`` in src/llama-quant.cpp).

    The head is Q6_K. So are values, a delta-net's qkv and ``ffn_down`` in the first and the last
    eighth of the layers and in every third one between. All else is Q4_K.

    Args:
        num_layers: that the file has, its NextN layer among them.
    """
    if name == "output.weight":
        return "Q6_K"
    found = MORE_BITS.fullmatch(name)
    if found is None:
        return "Q4_K"
    layer, eighth = int(found[1]), num_layers // 8
    more = layer < eighth or layer >= 7 * num_layers // 8 or (layer - eighth) % 3 == 2
    return "Q6_K" if more else "Q4_K"


def _tensors(
    matrices: Iterable[Matrix], vectors: Iterable[tuple[str, np.ndarray]], num_layers: int
) -> Iterable[tuple[str, tuple[int, ...], str]]:
    for name, rows, columns in matrices:
        yield name, (rows, columns), q4_k_m(name, num_layers)
    for name, values in vectors:
        yield name, values.shape, "F32"


def target_file(shape: Shape = QWEN_27B) -> PaperFile:
    """A target with a head of its own and a NextN layer, Q4_K_M."""
    tables = [(f"{name}.weight", VOCABULARY, shape.width) for name in ("token_embd", "output")]
    matrices = [*tables, *target_matrices(shape)]
    vectors = target_vectors(shape, np.random.default_rng(0))
    return PaperFile("qwen35", target_keys(shape), _tensors(matrices, vectors, shape.layers + 1))


def drafter_file(shape: Shape = QWEN_27B, taps: tuple[int, ...] = TAPS) -> PaperFile:
    """The DFlash2 drafter of such a target, Q4_K_M."""
    keys = drafter_keys(shape) | {"target_layers": list(taps)}
    vectors = drafter_vectors(shape, np.random.default_rng(0))
    matrices = drafter_matrices(shape)
    return PaperFile("dflash", keys, _tensors(matrices, vectors, keys["block_count"]))
