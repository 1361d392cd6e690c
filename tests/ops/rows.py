"""Input rows, weights of both op sets over the same bytes, and equality by bits."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
from emulated import placed
from quant_data import Tensor

from specrt._ext.host_ops import Tape
from specrt.acts import Acts, Int8Rows
from specrt.host import HostOps
from specrt.host.acts import HostInt8Rows
from specrt.host.quantize import quantize as host_quantize
from specrt.host.weights import HostWeight
from specrt.kernels.weights import KernelWeight
from specrt.reference.quantize import quantize
from specrt.reference.weights import ReferenceWeight


def hostile_rows(num_rows: int, width: int, seed: int = 0) -> np.ndarray:
    """Normal rows with an outlier; by turns a NaN, an inf, a zero, a huge and a tiny block."""
    rng = np.random.default_rng([seed, num_rows, width])
    x = rng.standard_normal((num_rows, width), dtype=np.float32)
    x[:, width // 3] *= 100
    if num_rows > 1:
        x[1 % num_rows, 32:64] = 0
        x[1 % num_rows, 64:96] *= np.float32(1e-25)
    if num_rows > 2:
        x[2, 5] = np.nan
    if num_rows > 4:
        x[4, 40] = -np.inf
        x[5, :32] *= np.float32(1e36)
        x[6, 64:] *= np.float32(1e-18)
        x[7, :] = np.float32(2.0**-64)
        x[8, 31] = 3.4e38
    return x


def host_weight(tensor: Tensor, role="int8", bias=None) -> HostWeight:
    """A packed weight."""
    return HostOps(threads=1).weight(tensor, role, bias)


def both_weights(tensor: Tensor, role="int8", bias=None):
    """The same weight for the reference and for the host."""
    return SimpleNamespace(
        reference=ReferenceWeight(tensor, role, bias), host=host_weight(tensor, role, bias)
    )


def host_acts(num_rows: int, width: int, weights) -> Acts:
    """Room for rows as the host lays them."""
    return Acts.empty(num_rows, width, weights, int8_rows=HostInt8Rows)


def plain_rows(acts: Acts) -> Acts:
    """The host's prepared rows, row by row."""
    return Acts(
        acts.num_rows,
        acts.width,
        acts.x,
        *(side and _plain_side(side, acts) for side in (acts.first, acts.second)),
    )


def _plain_side(side: HostInt8Rows, acts: Acts) -> Int8Rows:
    def rows(array: np.ndarray, block: int) -> np.ndarray:
        """Panels of eight rows, [blocks, rows, values of a block] each, as [T, blocks * values]."""
        size = acts.width * len(array) // len(side.q)  # of a row
        panels = [
            array[start * size : min(start + 8, acts.num_rows) * size]
            .reshape(size // block, -1, block)
            .swapaxes(0, 1)
            .reshape(-1, size)
            for start in range(0, acts.num_rows, 8)
        ]
        return np.ascontiguousarray(np.concatenate(panels))

    plain = Int8Rows(rows(side.q, 4), rows(side.d, 1), rows(side.sums, 1))
    totals = plain.sums[:, ::2] + plain.sums[:, 1::2]
    assert_same_bits(rows(side.s, 1), plain.d * totals.astype(np.float32))
    return plain


def both_acts(level: int, x: np.ndarray, weights):
    """x prepared by the reference and by the host."""
    reference = Acts.empty(*x.shape, [w.reference for w in weights])
    host = host_acts(*x.shape, [w.host for w in weights])
    quantize(x, out=reference)
    tape = Tape(level)
    host_quantize(tape, x, out=host)
    tape.run()
    return SimpleNamespace(reference=reference, host=host)


def device_buffer(shape, dtype) -> np.ndarray:
    """Garbage, placed as device arrays are."""
    return (
        placed(np.full(math.prod(shape) * np.dtype(dtype).itemsize, 0x77, np.uint8))
        .view(dtype)
        .reshape(shape)
    )


def kernel_weight(tensor: Tensor, role="int8", bias=None) -> KernelWeight:
    """The same weight as tiles."""
    return KernelWeight(tensor, role, bias, placed)


def kernel_acts(reference: Acts, weights) -> Acts:
    """Rows that the reference prepared, as device arrays; behind them a row of garbage."""
    num_rows, width = reference.num_rows, reference.width
    acts = Acts.empty(num_rows + 1, width, weights, device_buffer)
    if acts.x is not None:
        acts.x[:num_rows] = reference.x
    for name in ("first", "second"):
        if getattr(acts, name) is not None:
            for field in ("q", "d", "sums"):
                rows = getattr(getattr(acts, name), field)
                rows[:num_rows] = getattr(getattr(reference, name), field)
    return acts.rows(num_rows)


PREPARED = {
    "int8": ("int8",),
    "float": ("f32",),
    "all forms": ("int8", "int8x2", "f32"),
}
"""Which roles read the acts of a norm or of a gate."""


def empty_acts(kind: str, num_rows: int, width: int, int8_rows=Int8Rows) -> Acts:
    """Acts full of garbage for those roles, laid as the op set does."""
    weights = [SimpleNamespace(form=role) for role in PREPARED[kind]]
    acts = Acts.empty(num_rows, width, weights, int8_rows=int8_rows)
    for array in forms_of(acts):
        array.view(np.uint8)[:] = 0x77
    return acts


def forms_of(acts) -> list[np.ndarray]:
    """All arrays of acts."""
    sides = [side for side in (acts.first, acts.second) if side is not None]
    arrays = [array for side in sides for array in (side.q, side.d, side.sums)]
    return arrays if acts.x is None else [acts.x, *arrays]


def assert_prepared(acts, rows: np.ndarray, kind: str) -> None:
    """What the reference makes of the rows, and nothing behind them."""
    expected = empty_acts(kind, *rows.shape)
    quantize(rows, out=expected)
    if isinstance(acts.first, HostInt8Rows):
        for array in forms_of(acts):
            used = array.size // acts.num_rows * len(rows)
            assert (array.reshape(-1)[used:].view(np.uint8) == 0x77).all()
        acts = plain_rows(acts.rows(len(rows)))
    for got, right in zip(forms_of(acts), forms_of(expected), strict=True):
        assert_same_bits(got[: len(rows)], right)
        assert (got[len(rows) :].view(np.uint8) == 0x77).all()


def nans(*shape: int) -> np.ndarray:
    return np.full(shape, np.nan, np.float32)


def assert_same_bits(got: np.ndarray, expected: np.ndarray) -> None:
    """Equal bits, any NaN being equal to any."""
    assert got.dtype == expected.dtype and got.shape == expected.shape
    same = got.view(np.uint8) == expected.view(np.uint8)
    same = same.reshape(*got.shape, -1).all(axis=-1)
    if got.dtype == np.float32:
        same |= np.isnan(got) & np.isnan(expected)
    assert same.all(), f"{(~same).sum()} of {same.size} differ, first at {np.argwhere(~same)[0]}"
