"""What the bytes of every GGUF quant type mean: integer codes, exact scales, exact minima."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from ..acts import FLOAT_TYPES

Array = Any
Parts = tuple[Array, Array, Array | None]
"""Codes [n, block] int8, scales [n, block / sub] f32, minima [n, block / sub] f32 or None."""

IQ4_VALUES = np.array(
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.int8
)
MXFP4_VALUES = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.int8)


@dataclass(frozen=True, slots=True)
class QuantType:
    """One quant type: ``unpack`` takes blocks [n, num_bytes] uint8."""

    block: int
    num_bytes: int
    sub: int
    unpack: Callable[[Array], Parts]


def unpack(type_name: str, raw: Array) -> Parts:
    """Integer codes with exact scales: a weight is ``scale * code + minimum``.

    Args:
        type_name: A key of ``QUANT_TYPES``.
        raw: [N, row_bytes] uint8, whole blocks.

    Returns:
        Codes [N, K] int8; scales [N, K / sub] f32, the exact products of the block's float16 scale
        and its integer scale; minima [N, K / sub] f32, the exact signed addends, or None.
    """
    quant = QUANT_TYPES[type_name]
    num_rows = raw.shape[0]
    blocks = np.ascontiguousarray(raw).reshape(-1, quant.num_bytes)
    codes, scale, minimum = quant.unpack(blocks)
    if minimum is not None:
        minimum = minimum.reshape(num_rows, -1)
    return codes.astype(np.int8).reshape(num_rows, -1), scale.reshape(num_rows, -1), minimum


def dequantize(type_name: str, raw: Array) -> Array:
    """The float32 weights: ``scale * code``, rounded, then ``+ minimum``, rounded.

    Args:
        type_name: A key of ``QUANT_TYPES`` or one of ``FLOAT_TYPES``.
        raw: [N, row_bytes] uint8.

    Returns:
        [N, K] f32, bit for bit what ``gguf.quants.dequantize`` gives.
    """
    if type_name == "BF16":
        return (np.ascontiguousarray(raw).view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    if type_name in FLOAT_TYPES:
        dtype = np.float16 if type_name == "F16" else np.float32
        return np.ascontiguousarray(raw).view(dtype).astype(np.float32)
    codes, scale, minimum = unpack(type_name, raw)
    grouped = codes.reshape(*scale.shape, QUANT_TYPES[type_name].sub).astype(np.float32)
    with np.errstate(all="ignore"):
        values = scale[..., None] * grouped
        if minimum is not None:
            values = values + minimum[..., None]
    return values.reshape(codes.shape)


def _cut(blocks: Array, *sizes: int) -> list[Array]:
    """The fields of a block; the last takes the rest."""
    return [np.ascontiguousarray(part) for part in np.split(blocks, np.cumsum(sizes), axis=1)]


def _f16(field: Array) -> Array:
    return field.view(np.float16).astype(np.float32)


def _bits(field: Array, width: int, group: int) -> Array:
    """Fields of ``width`` bits: of each group of bytes all low ones, then all next ones."""
    shifts = np.arange(0, 8, width, dtype=np.uint8)[:, None]
    parts = field.reshape(len(field), -1, 1, group) >> shifts
    return (parts & np.uint8(2**width - 1)).reshape(len(field), -1)


def _signs(field: Array) -> Array:
    """+1 or -1 per bit, low bit first."""
    return 1 - 2 * _bits(field, 1, 1).astype(np.int8)


@cache
def codebook(type_name: str) -> Array:
    """The codebook of an IQ type, [entries, 8 or 4] int8, from the gguf package."""
    from gguf import quants

    book = getattr(quants, type_name)
    book.init_grid()
    return book.grid.reshape(book.grid_shape).astype(np.int8)


def _sign_bytes(index: Array) -> Array:
    """Seven sign bits as eight: the eighth makes their number even."""
    parity = np.bitwise_xor.reduce(index[..., None] >> np.arange(7, dtype=index.dtype), -1) & 1
    return (index | (parity << 7)).astype(np.uint8)


def _q4_0(blocks: Array) -> Parts:
    d, qs = _cut(blocks, 2)
    return _bits(qs, 4, 16).astype(np.int8) - 8, _f16(d), None


def _q4_1(blocks: Array) -> Parts:
    d, m, qs = _cut(blocks, 2, 2)
    return _bits(qs, 4, 16), _f16(d), _f16(m)


def _q5(qs: Array, qh: Array) -> Array:
    return (_bits(qs, 4, 16) | (_bits(qh, 1, 1) << 4)).astype(np.int8)


def _q5_0(blocks: Array) -> Parts:
    d, qh, qs = _cut(blocks, 2, 4)
    return _q5(qs, qh) - 16, _f16(d), None


def _q5_1(blocks: Array) -> Parts:
    d, m, qh, qs = _cut(blocks, 2, 2, 4)
    return _q5(qs, qh), _f16(d), _f16(m)


def _q8_0(blocks: Array) -> Parts:
    d, qs = _cut(blocks, 2)
    return qs.view(np.int8), _f16(d), None


def _q2_k(blocks: Array) -> Parts:
    scales, qs, d, dmin = _cut(blocks, 16, 64, 2)
    return _bits(qs, 2, 32), _f16(d) * (scales & 15), -(_f16(dmin) * (scales >> 4))


def _q3_k(blocks: Array) -> Parts:
    hmask, qs, scales, d = _cut(blocks, 32, 64, 12)
    low, high = _cut(scales, 8)
    sc = (_bits(low, 4, 8) | (_bits(high, 2, 4) << 4)).astype(np.float32) - 32
    codes = (_bits(qs, 2, 32) | (_bits(hmask, 1, 32) << 2)).astype(np.int8) - 4
    return codes, _f16(d) * sc, None


def _k_scales(d: Array, dmin: Array, scales: Array) -> tuple[Array, Array]:
    """Eight 6-bit scales and minima from 12 bytes."""
    a, m, high = _cut(scales, 4, 4)
    sc = np.concatenate([a & 63, (high & 15) | (a >> 2 & 48)], axis=1)
    mc = np.concatenate([m & 63, (high >> 4) | (m >> 2 & 48)], axis=1)
    return _f16(d) * sc, -(_f16(dmin) * mc)


def _q4_k(blocks: Array) -> Parts:
    d, dmin, scales, qs = _cut(blocks, 2, 2, 12)
    return _bits(qs, 4, 32), *_k_scales(d, dmin, scales)


def _q5_k(blocks: Array) -> Parts:
    d, dmin, scales, qh, qs = _cut(blocks, 2, 2, 12, 32)
    return _bits(qs, 4, 32) | (_bits(qh, 1, 32) << 4), *_k_scales(d, dmin, scales)


def _q6_k(blocks: Array) -> Parts:
    ql, qh, scales, d = _cut(blocks, 128, 64, 16)
    codes = (_bits(ql, 4, 64) | (_bits(qh, 2, 32) << 4)).astype(np.int8) - 32
    return codes, _f16(d) * scales.view(np.int8), None


def _iq4_nl(blocks: Array) -> Parts:
    d, qs = _cut(blocks, 2)
    return IQ4_VALUES[_bits(qs, 4, 16)], _f16(d), None


def _iq4_xs(blocks: Array) -> Parts:
    d, high, low, qs = _cut(blocks, 2, 2, 4)
    sc = (_bits(low, 4, 1) | (_bits(high, 2, 1) << 4)).astype(np.float32) - 32
    return IQ4_VALUES[_bits(qs, 4, 16)], _f16(d) * sc, None


def _mxfp4(blocks: Array) -> Parts:
    e, qs = _cut(blocks, 1)
    wide = e.astype(np.uint32)
    # Half of 2^(e - 127), since the codes are doubled.
    bits = np.where(wide < 2, np.uint32(0x200000) << wide, (wide - 1) << 23).astype(np.uint32)
    return MXFP4_VALUES[_bits(qs, 4, 16)], bits.view(np.float32), None


def _packed_signs(words: Array) -> Array:
    """Four 7-bit sign indices from the low 28 bits of each uint32."""
    index = words[..., None] >> np.arange(0, 28, 7, dtype=np.uint32) & 127
    return _signs(_sign_bytes(index).reshape(len(words), -1))


def _iq2_xxs(blocks: Array) -> Parts:
    d, rest = _cut(blocks, 2)
    pairs = rest.view(np.uint32).reshape(len(blocks), -1, 2)
    words = np.ascontiguousarray(pairs[..., 1])
    index = np.ascontiguousarray(pairs[..., 0]).view(np.uint8)
    codes = codebook("IQ2_XXS")[index].reshape(len(blocks), -1) * _packed_signs(words)
    return codes, _f16(d) * ((words >> 28).astype(np.float32) + 0.5) * 0.25, None


def _iq2_xs(blocks: Array) -> Parts:
    d, qs, scales = _cut(blocks, 2, 64)
    q = qs.view(np.uint16)
    codes = codebook("IQ2_XS")[q & 511].reshape(len(blocks), -1) * _signs(_sign_bytes(q >> 9))
    return codes, _half_steps(d, scales), None


def _half_steps(d: Array, scales: Array) -> Array:
    return _f16(d) * (_bits(scales, 4, 1).astype(np.float32) + 0.5) * 0.25


def _iq2_s(blocks: Array) -> Parts:
    d, qs, signs, qh, scales = _cut(blocks, 2, 32, 32, 8)
    index = qs.astype(np.uint16) | (_bits(qh, 2, 1).astype(np.uint16) << 8)
    codes = codebook("IQ2_S")[index].reshape(len(blocks), -1) * _signs(signs)
    return codes, _half_steps(d, scales), None


def _iq3_xxs(blocks: Array) -> Parts:
    d, qs, rest = _cut(blocks, 2, 64)
    words = rest.view(np.uint32)
    codes = codebook("IQ3_XXS")[qs].reshape(len(blocks), -1) * _packed_signs(words)
    return codes, _f16(d) * ((words >> 28).astype(np.float32) + 0.5) * 0.5, None


def _iq3_s(blocks: Array) -> Parts:
    d, qs, qh, signs, scales = _cut(blocks, 2, 64, 8, 32)
    index = qs.astype(np.uint16) | (_bits(qh, 1, 1).astype(np.uint16) << 8)
    codes = codebook("IQ3_S")[index].reshape(len(blocks), -1) * _signs(signs)
    return codes, _f16(d) * (2 * _bits(scales, 4, 1) + 1), None


QUANT_TYPES = {
    "Q4_0": QuantType(32, 18, 32, _q4_0),
    "Q4_1": QuantType(32, 20, 32, _q4_1),
    "Q5_0": QuantType(32, 22, 32, _q5_0),
    "Q5_1": QuantType(32, 24, 32, _q5_1),
    "Q8_0": QuantType(32, 34, 32, _q8_0),
    "Q2_K": QuantType(256, 84, 16, _q2_k),
    "Q3_K": QuantType(256, 110, 16, _q3_k),
    "Q4_K": QuantType(256, 144, 32, _q4_k),
    "Q5_K": QuantType(256, 176, 32, _q5_k),
    "Q6_K": QuantType(256, 210, 16, _q6_k),
    "IQ4_NL": QuantType(32, 18, 32, _iq4_nl),
    "IQ4_XS": QuantType(256, 136, 32, _iq4_xs),
    "MXFP4": QuantType(32, 17, 32, _mxfp4),
    "IQ2_XXS": QuantType(256, 66, 32, _iq2_xxs),
    "IQ2_XS": QuantType(256, 74, 16, _iq2_xs),
    "IQ2_S": QuantType(256, 82, 16, _iq2_s),
    "IQ3_XXS": QuantType(256, 98, 32, _iq3_xxs),
    "IQ3_S": QuantType(256, 110, 32, _iq3_s),
}
