"""Weights of the CUDA op set: GGUF rows as tiles of sixteen, laid out for 16-byte copies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..acts import input_form
from ..array_checks import check_matrix
from ..errors import UnsupportedError
from ..experts import experts_of
from ..ops import Role

Array = Any

TILE_ROWS = 16

FIELDS: dict[str, tuple[tuple[int, int], ...]] = {
    "F32": ((0, 128),),
    "F16": ((0, 64),),
    "BF16": ((0, 64),),
    "Q4_0": ((2, 16), (0, 2)),
    "Q4_1": ((4, 16), (0, 4)),
    "Q5_0": ((6, 16), (2, 4), (0, 2)),
    "Q5_1": ((8, 16), (0, 8)),
    "Q8_0": ((2, 32), (0, 2)),
    "Q2_K": ((0, 80), (80, 4)),
    "Q3_K": ((0, 96), (96, 12), (108, 2)),
    "Q4_K": ((0, 144),),
    "Q5_K": ((0, 176),),
    "Q6_K": ((0, 208), (208, 2)),
    "IQ4_NL": ((2, 16), (0, 2)),
    "IQ4_XS": ((8, 128), (0, 8)),
    "IQ2_XXS": ((2, 64), (0, 2)),
    "IQ2_XS": ((2, 64), (66, 8), (0, 2)),
    "IQ2_S": ((2, 80), (0, 2)),
    "IQ3_XXS": ((2, 96), (0, 2)),
    "IQ3_S": ((2, 64), (74, 32), (66, 8), (106, 4), (0, 2)),
    "MXFP4": ((1, 16), (0, 1)),
}
"""Where each type's fields start in a block, and their bytes, in the order of a tile's block."""


class KernelWeight:
    """A matrix [N, K] on the device, for ``linear``, ``head`` and ``embed``.

    Sixteen rows are a tile, the last one filled up with zero rows. A tile's blocks lie one behind
    the other; in a block every field of whole 16-byte vectors is [vector][row][16 bytes], every
    shorter one [row][bytes]. So a block of a tile is as large as sixteen blocks of the file. For
    float types 32 columns are a block, the last one filled up with zeros.

    Args:
        tensor: a GGUF tensor.
        role: how its input is prepared.
        bias: [N] f32 on the device, or None.
        to_device: makes an array of the device from one of NumPy.
    """

    def __init__(
        self, tensor: Any, role: Role, bias: Array | None, to_device: Callable[[Array], Array]
    ) -> None:
        check_type(tensor)
        self.shape: tuple[int, int] = tensor.shape
        self.role = role
        self.type_name: str = tensor.type.name
        self.form = input_form(self.type_name, role)
        check_matrix(tensor, bias)
        self.bias = bias
        self.tiles = to_device(tiles_of(self.type_name, tensor.raw))
        self._to_device = to_device
        self._keys: Array | None = None

    @property
    def num_tiles(self) -> int:
        """Tiles of sixteen rows."""
        return -(-self.shape[0] // TILE_ROWS)

    def keys(self, num_rows: int) -> Array:
        """What ``head`` writes for each row and tile, [T, tiles] uint64: made when T is largest.

        Programs keep what they were recorded with: twice the rows each time, so that windows which
        grow by a row do not leave an array each.
        """
        if self._keys is None or len(self._keys) < num_rows:
            room = 1 << (num_rows - 1).bit_length()
            self._keys = self._to_device(np.zeros((room, self.num_tiles), np.uint64))
        return self._keys[:num_rows]


class KernelExperts:
    """As many matrices [N, K] as there are experts, each in tiles of its own, as those of a weight.

    Args:
        tensor: a GGUF tensor [E, N, K].
        role: how the input is prepared.
        to_device: makes an array of the device from one of NumPy.
    """

    def __init__(self, tensor: Any, role: Role, to_device: Callable[[Array], Array]) -> None:
        check_type(tensor)
        experts = list(experts_of(tensor))
        for expert in experts:
            check_matrix(expert, None)
        self.num_experts = len(experts)
        self.shape: tuple[int, int] = experts[0].shape
        self.role = role
        self.type_name: str = tensor.type.name
        self.form = input_form(self.type_name, role)
        self.tiles = to_device(np.stack([tiles_of(self.type_name, one.raw) for one in experts]))

    @property
    def expert_bytes(self) -> int:
        """From one expert's tiles to the next one's."""
        return int(self.tiles.nbytes) // self.num_experts


def check_type(tensor: Any) -> None:
    """Raise ``UnsupportedError`` unless tiles hold the type."""
    if tensor.type.name not in FIELDS:
        raise UnsupportedError(
            f"{tensor.name} has type {tensor.type.name}; CUDA runs {', '.join(FIELDS)}"
        )


def block_bytes_of(type_name: str) -> int:
    """Bytes of one row's block."""
    return sum(size for _, size in FIELDS[type_name])


def tiles_shape(type_name: str, shape: tuple[int, int]) -> tuple[int, int, int]:
    """That of the tiles of raw rows [N, row_bytes]."""
    size = block_bytes_of(type_name)
    return -(-shape[0] // TILE_ROWS), -(-shape[1] // size), TILE_ROWS * size


def tiles_of(type_name: str, raw: Array) -> Array:
    """Raw rows [N, row_bytes] uint8 as tiles, [tiles, blocks, 16 * block_bytes] uint8."""
    fields, size = FIELDS[type_name], block_bytes_of(type_name)
    row_bytes = raw.shape[1]
    num_tiles, num_blocks, tile_bytes = tiles_shape(type_name, raw.shape)
    tiles = np.zeros((num_tiles, num_blocks, tile_bytes), np.uint8)
    for tile in range(num_tiles):
        rows = raw[tile * TILE_ROWS : (tile + 1) * TILE_ROWS]
        blocks: Array = np.zeros((TILE_ROWS, num_blocks * size), np.uint8)
        blocks[: len(rows), :row_bytes] = rows
        blocks = blocks.reshape(TILE_ROWS, num_blocks, size)
        at = 0
        for start, length in fields:
            piece = 16 if length % 16 == 0 else length
            part = blocks[:, :, start : start + length].reshape(TILE_ROWS, num_blocks, -1, piece)
            end = at + TILE_ROWS * length
            tiles[tile, :, at:end] = part.transpose(1, 2, 0, 3).reshape(num_blocks, -1)
            at = end
    return tiles


def defines_of(weight: KernelWeight | KernelExperts) -> tuple[str, ...]:
    """The macros of a kernel's module for this weight's type."""
    return (f"WEIGHT_TYPE {weight.type_name}",)
