"""Cached keys and values in pages of 64 positions, and what a type stores of a value."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import UnsupportedError
from ..ops import PAGE, KVType

Array = Any

Q8_BLOCK = 32
Q8_BYTES = 2 + Q8_BLOCK
SMALLEST = np.float32(2.0**-64)
DTYPES = {"f32": np.float32, "f16": np.float16}


def check_kv(kv_type: KVType, head_dim: int) -> None:
    """Raise ``UnsupportedError`` where a head cannot be stored in that type."""
    if kv_type == "q8_0" and head_dim % Q8_BLOCK:
        raise UnsupportedError(
            f"kv_type q8_0 stores blocks of {Q8_BLOCK} dims, and a head has {head_dim}: "
            "use f16 or f32"
        )


def encode(x: Array, kv_type: KVType) -> Array:
    """What the cache stores of float32 values.

    ``q8_0``: per 32 dims ``a = max|x|``, ``d = f16(a / 127)``, ``q = rne(x * (127 / a))``; zeros if
    ``a < 2^-64``, and ``d = NaN`` with zeros if a value is not finite.

    Args:
        x: [..., Dh] f32.

    Returns:
        [..., Dh] f32 or f16, or [..., Dh / 32, 34] uint8: the bytes of d, then q as int8.
    """
    with np.errstate(over="ignore"):
        if kv_type != "q8_0":
            return x.astype(DTYPES[kv_type])
        blocks = x.reshape(*x.shape[:-1], -1, Q8_BLOCK)
        largest = np.abs(blocks).max(axis=-1, keepdims=True)  # NaN if any is
        finite = np.isfinite(largest)
        used = finite & (largest >= SMALLEST)
        a = np.where(used, largest, np.float32(1))
        codes = np.rint(np.where(used, blocks, np.float32(0)) * (np.float32(127) / a))
        d = np.where(used, a / np.float32(127), np.float32(0))
        scale = np.where(finite, d, np.float32(np.nan)).astype(np.float16)
    return pack(scale[..., 0], codes.astype(np.int8))


def decode(stored: Array, kv_type: KVType) -> Array:
    """The float32 values that attention reads: exact for every type, ``d * q`` for ``q8_0``."""
    if kv_type != "q8_0":
        return stored.astype(np.float32)
    scale, codes = unpack(stored)
    values = scale[..., None].astype(np.float32) * codes.astype(np.float32)
    return values.reshape(*stored.shape[:-2], -1)


def pack(scale: Array, codes: Array) -> Array:
    """Scales [..., n] f16 and codes [..., n, 32] int8 as [..., n, 34] uint8."""
    scale_bytes = np.ascontiguousarray(scale)[..., None].view(np.uint8)
    return np.concatenate([scale_bytes, np.ascontiguousarray(codes).view(np.uint8)], axis=-1)


def unpack(stored: Array) -> tuple[Array, Array]:
    """The reverse of ``pack``."""
    scale = np.ascontiguousarray(stored[..., :2]).view(np.float16)[..., 0]
    return scale, np.ascontiguousarray(stored[..., 2:]).view(np.int8)


def page_of(cache: Any, step: Any, seq: int, chunk: int) -> int:
    """The page of a chunk: of a ring ``ring_table[seq, chunk % ring_pages]``."""
    if cache.ring_pages:
        return int(step.ring_table[seq, chunk % cache.ring_pages])
    return int(step.page_table[seq, chunk])


class ReferenceKVLayer:
    """One layer's pages: ``k``, ``v`` [pages, 64, Hkv, ...] in stored form."""

    def __init__(
        self, num_pages: int, num_heads: int, head_dim: int, kv_type: KVType, ring_pages: int
    ) -> None:
        check_kv(kv_type, head_dim)
        self.kv_type, self.ring_pages = kv_type, ring_pages
        self.num_heads, self.head_dim = num_heads, head_dim
        shape = encode(np.zeros((1, num_heads, head_dim), np.float32), kv_type)
        self.k, self.v = (np.zeros((num_pages, PAGE, *shape.shape[1:]), shape.dtype) for _ in "kv")


def kv_read(cache: ReferenceKVLayer, pages: Array, positions: Array) -> tuple[Array, Array]:
    """Keys and values in the form in which sessions are saved.

    Args:
        pages: [n], the page of each position.
        positions: [n].

    Returns:
        Two arrays [n, Hkv, Dh] f32 or f16, or [n, Hkv, Dh / 32, 34] uint8 as ``encode`` gives.
    """
    at = (pages, positions % PAGE)
    return cache.k[at], cache.v[at]


def kv_write(cache: ReferenceKVLayer, pages: Array, positions: Array, k: Array, v: Array) -> None:
    """Store what ``kv_read`` gave, bit for bit."""
    at = (pages, positions % PAGE)
    cache.k[at], cache.v[at] = k, v
