"""Launcher of ``cuda/linear.cu``: see ``specrt.reference.linear``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..acts import Acts
from ..array_checks import check_linear
from ..errors import MismatchError
from ..reference.quant_blocks import QUANT_TYPES
from .checks import aligned
from .device import Device
from .weights import TILE_ROWS, KernelExperts, KernelWeight, block_bytes_of, defines_of

Array = Any

MAX_PAIRS = 8
NUM_WARPS = 8
THREADS = 32 * NUM_WARPS
WARP_BYTES = 6144
MAX_STAGES = 4
SCALE_BYTES = 512
CODE_ROW_BYTES = 104
F32_ROW_BYTES = 144


@dataclass(frozen=True, slots=True)
class Form:
    """An entry of linear.cu: how many rows of tiles and of input rows a block takes."""

    entry: str
    rows: int
    tiles: int = 1

    def rows_of(self, input_form: str) -> int:
        """Input rows of a block: each of int8x2 is two."""
        return self.rows // 2 if input_form == "int8x2" else self.rows


DOT = Form("linear_dot", 2)
MMA = (Form("linear_mma_8", 8), Form("linear_mma_16", 16))
TILED = Form("linear_tiled", 32, 4)
F32 = (Form("linear_f32_8", 8), Form("linear_f32_16", 16))


def choose_form(input_form: str, num_rows: int) -> Form:
    """Which entry serves T rows; the result is the same.

    A matrix unit wastes most of its columns on one or two rows. Forms that split K read their
    weights once for each group of rows; with many groups the tiled form reads less.
    """
    if input_form == "f32":
        return F32[num_rows > 8]
    local = 2 * num_rows if input_form == "int8x2" else num_rows
    if local <= DOT.rows:
        return DOT
    return TILED if local > 64 else MMA[local > 8]


def linear(
    device: Device,
    pairs: Sequence[tuple[KernelWeight, Array]],
    acts: Acts,
    *,
    add: Array | None = None,
) -> None:
    """Launch ``linear`` for up to eight pairs of a weight [N, K] and its out [T, N] f32.

    Pairs whose weights have one type and form are one launch.
    """
    num_rows = check_linear(pairs, acts, add, MAX_PAIRS)
    for same in alike(pairs) if num_rows else ():
        launch_linear(device, same, acts, num_rows, add=add)


def alike(pairs: Sequence[tuple[Any, Any]]) -> list[list[tuple[Any, Any]]]:
    """The pairs by type and form of their weights: what one launch takes."""
    kinds = dict.fromkeys((weight.type_name, weight.form) for weight, _ in pairs)
    return [[p for p in pairs if (p[0].type_name, p[0].form) == kind] for kind in kinds]


def launch_linear(
    device: Device,
    pairs: Sequence[tuple[KernelWeight, Array | None]],
    acts: Acts,
    num_rows: int,
    *,
    add: Array | None = None,
    keys: Array | None = None,
    scale: float = 1.0,
    softcap: float = 0.0,
    form: Form | None = None,
    stride: int = 0,
) -> None:
    """Launch one entry for checked pairs of one type and form; form is chosen if it is None.

    Args:
        stride: floats from row to row of add and out; 0 where they are adjacent.
    """
    weight = pairs[0][0]
    form = form or choose_form(weight.form, num_rows)
    tile_rows = TILE_ROWS * form.tiles
    num_tiles = sum(-(-weight.shape[0] // tile_rows) for weight, _ in pairs)
    args: list[Any] = []
    for place in range(MAX_PAIRS):
        pair = pairs[place] if place < len(pairs) else None
        args += [None, None, None, np.int32(0)] if pair is None else _pair_args(*pair)
    args += rows_arguments(weight.form, acts)
    args += [add, keys, np.float32(scale), np.float32(softcap)]
    args += [*map(np.int32, (num_rows, stride, acts.width))]
    device.launch(
        "linear",
        form.entry,
        (num_tiles, -(-num_rows // form.rows_of(weight.form))),
        THREADS,
        args,
        shared_bytes(form, weight),
        defines_of(weight),
    )


def _pair_args(weight: KernelWeight, out: Array | None) -> list[Any]:
    return [weight.tiles, weight.bias, out, np.int32(weight.shape[0])]


def rows_arguments(form: str, acts: Acts) -> list[Any]:
    """What an entry reads of rows in a form.

    Raises:
        MismatchError: they lie where no 16 bytes can be read at once.
    """
    if form == "f32":
        wide = acts.width % 4 == 0 and aligned(16, acts.x)
        return [acts.x, np.int32(wide)]
    args = []
    for rows in (acts.first, acts.second if form == "int8x2" else None):
        args += [None] * 3 if rows is None else [rows.q, rows.d, rows.sums]
    if not (aligned(16, args[0], args[3]) and aligned(8, args[2], args[5])):
        raise MismatchError(
            "linear: codes start at no multiple of 16 bytes, or sums of 8; use ops.acts(...)"
        )
    return args


def shared_bytes(form: Form, weight: KernelWeight | KernelExperts) -> int:
    """What the entry lays out, as tile.cuh names it."""
    block = TILE_ROWS * block_bytes_of(weight.type_name)
    if form in F32:
        return _split_bytes(block, F32_ROW_BYTES * form.rows)
    unit = block if QUANT_TYPES[weight.type_name].block > 32 else 2 * block
    if form is TILED:
        rings = TILED.tiles * (2 * unit + SCALE_BYTES)
        return max(rings + CODE_ROW_BYTES * form.rows, 4 * form.rows * form.tiles * TILE_ROWS)
    return _split_bytes(unit, CODE_ROW_BYTES * form.rows + SCALE_BYTES)


def _split_bytes(unit: int, rest: int) -> int:
    num_stages = min(MAX_STAGES, (WARP_BYTES - rest) // unit)
    return NUM_WARPS * (num_stages * unit + rest)
