"""Matrix times rows, in one order of additions that every device keeps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..acts import Acts, Int8Rows
from .fma import fma32
from .quant_blocks import QUANT_TYPES
from .weights import ReferenceWeight

Array = Any

NUM_SEGMENTS = 8
FLOAT_BLOCK = 32
SMALLEST_MXFP4 = np.float32(2.0**-30)


def linear(
    pairs: Sequence[tuple[ReferenceWeight, Array]],
    acts: Acts,
    *,
    add: Array | None = None,
) -> None:
    """Write ``x W^T (+ bias) (+ add)`` for each pair of a weight and its output.

    A weight's n blocks along K (of 256 or 32 columns; of 32 for float weights, the last may be
    short) are cut into 8 segments of ``ceil(n / 8)``. Within a segment, ascending from zero, each
    sub-block of 16 or 32 columns adds ``acc = fma((d_w sc) d_x, float(sum w q), acc)`` and, if
    the type has minima, ``acc = fma(minimum, d_x float(sum q), acc)``; the segments are then
    added ascending from zero. ``int8x2`` adds two complete accumulations. Float weights, and
    quantised ones with role ``f32``, add ``acc = fma(w, x, acc)`` column by column. MXFP4 scales
    below 2^-30 count as zero.

    Args:
        pairs: Each weight [N, K] with its out [T, N] f32; types and N may differ.
        acts: T rows of width K, as ``quantize`` wrote them.
        add: [T, N] f32, added last; it may be the out of the only pair.
    """
    for weight, out in pairs:
        result = product(weight, acts.rows(len(out)))
        out[:] = result if add is None else result + add


def product(weight: ReferenceWeight, acts: Acts) -> Array:
    """``x W^T (+ bias)`` as ``linear`` defines it, [T, N] f32."""
    with np.errstate(all="ignore"):
        if weight.form == "f32":
            assert acts.x is not None, "acts were made without a float32 form"
            result = _float_product(_float_values(weight), acts.x, _block(weight))
        else:
            assert acts.first is not None, "acts were made without an int8 form"
            result = _int8_product(weight, acts.first)
            if weight.form == "int8x2":
                assert acts.second is not None, "acts were made without a second int8 form"
                result = result + _int8_product(weight, acts.second)
        return result if weight.bias is None else result + weight.bias


def _int8_product(weight: ReferenceWeight, rows: Int8Rows) -> Array:
    quant = QUANT_TYPES[weight.type_name]
    subs = quant.block // quant.sub
    codes, scale, minimum = weight.unpacked
    if weight.type_name == "MXFP4":
        scale = np.where(scale < SMALLEST_MXFP4, np.float32(0), scale)
    shape = (len(codes), -1, subs, quant.sub)
    w = _segments(codes.reshape(shape).astype(np.float64))
    q = _segments(rows.q.reshape(len(rows.q), *shape[1:]).astype(np.float64))
    per_sub = quant.sub // 16
    sums = rows.sums.reshape(len(rows.q), -1, per_sub).sum(axis=2, dtype=np.int32)
    d = np.repeat(rows.d, 2 // per_sub, axis=1)
    s = d * sums.astype(np.float32)
    scale, d, s = (_segments(part.reshape(len(part), -1, subs)) for part in (scale, d, s))
    if minimum is not None:
        minimum = _segments(minimum.reshape(len(minimum), -1, subs))
    acc = np.zeros((NUM_SEGMENTS, len(rows.q), len(codes)), np.float32)
    for block in range(w.shape[2]):
        for sub in range(subs):
            at = np.s_[:, :, block, sub]
            dot = (q[at] @ w[at].transpose(0, 2, 1)).astype(np.float32)
            acc = fma32(d[at][:, :, None] * scale[at][:, None, :], dot, acc)
            if minimum is not None:
                acc = fma32(minimum[at][:, None, :], s[at][:, :, None], acc)
    return _sum_ascending(acc)


def _float_values(weight: ReferenceWeight) -> Array:
    if weight.type_name != "MXFP4":
        return weight.values
    tiny = np.repeat(weight.unpacked[1] < SMALLEST_MXFP4, 32, axis=1)
    return np.where(tiny, np.float32(0), weight.values)


def _block(weight: ReferenceWeight) -> int:
    quant = QUANT_TYPES.get(weight.type_name)
    return FLOAT_BLOCK if quant is None else quant.block


def _float_product(values: Array, x: Array, size: int) -> Array:
    """The product over blocks of ``size`` columns."""
    short = -values.shape[1] % size
    w, rows = (
        _segments(np.pad(part, ((0, 0), (0, short))).reshape(len(part), -1, size))
        for part in (values, x)
    )
    acc = np.zeros((NUM_SEGMENTS, len(x), len(values)), np.float32)
    for block in range(w.shape[2]):
        for column in range(size):
            at = np.s_[:, :, block, column]
            acc = fma32(w[at][:, None, :], rows[at][:, :, None], acc)
    return _sum_ascending(acc)


def _segments(blocks: Array) -> Array:
    """[M, n, ...] to [8, M, ceil(n / 8), ...], zeros behind the end (they add nothing)."""
    num_blocks = blocks.shape[1]
    per_segment = -(-num_blocks // NUM_SEGMENTS)
    missing = NUM_SEGMENTS * per_segment - num_blocks
    padded = np.pad(blocks, [(0, 0), (0, missing)] + [(0, 0)] * (blocks.ndim - 2))
    cut = padded.reshape(len(blocks), NUM_SEGMENTS, per_segment, *blocks.shape[2:])
    return np.moveaxis(cut, 1, 0)


def _sum_ascending(segments: Array) -> Array:
    total = np.zeros(segments.shape[1:], np.float32)
    for segment in segments:
        total = total + segment
    return total
