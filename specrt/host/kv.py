"""Cached keys and values of the host op set: pages as ``_ext/host/kv.h`` describes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..ops import PAGE, KVType
from ..reference.kv import DTYPES, Q8_BLOCK, check_kv, pack, unpack

Array = Any


class HostKVLayer:
    """One layer's pages.

    ``k`` [pages, Hkv, Dh, 64] and ``v`` [pages, Hkv, 64, Dh rounded up to 16] in f32, f16 or int8;
    for ``q8_0`` the f16 scales ``k_scale`` [pages, Hkv, Dh / 32, 64] and ``v_scale``
    [pages, Hkv, 64, Dh / 32], else None.
    """

    def __init__(
        self,
        num_pages: int,
        num_heads: int,
        head_dim: int,
        kv_type: KVType,
        ring_pages: int,
        buffer: Callable[[tuple[int, ...], Any], Array],
    ) -> None:
        check_kv(kv_type, head_dim)
        self.kv_type, self.ring_pages = kv_type, ring_pages
        self.num_heads, self.head_dim = num_heads, head_dim
        dtype = DTYPES.get(kv_type, np.int8)
        row_dims = -(-head_dim // 16) * 16
        self.k = buffer((num_pages, num_heads, head_dim, PAGE), dtype)
        self.v = buffer((num_pages, num_heads, PAGE, row_dims), dtype)
        self.k_scale = self.v_scale = None
        if kv_type == "q8_0":
            groups = head_dim // Q8_BLOCK
            self.k_scale = buffer((num_pages, num_heads, groups, PAGE), np.float16)
            self.v_scale = buffer((num_pages, num_heads, PAGE, groups), np.float16)


def kv_read(cache: HostKVLayer, pages: Array, positions: Array) -> tuple[Array, Array]:
    """Keys and values in the form in which sessions are saved: see ``specrt.reference.kv``."""
    slots = positions % PAGE
    k = cache.k[pages, :, :, slots]
    v = cache.v[pages, :, slots, : cache.head_dim]
    if cache.k_scale is None or cache.v_scale is None:
        return k, v
    blocks = (len(positions), cache.num_heads, -1, Q8_BLOCK)
    return (
        pack(cache.k_scale[pages, :, :, slots], k.reshape(blocks)),
        pack(cache.v_scale[pages, :, slots], v.reshape(blocks)),
    )


def kv_write(cache: HostKVLayer, pages: Array, positions: Array, k: Array, v: Array) -> None:
    """Store what ``kv_read`` gave, bit for bit."""
    slots = positions % PAGE
    if cache.k_scale is not None and cache.v_scale is not None:
        cache.k_scale[pages, :, :, slots], k = unpack(k)
        cache.v_scale[pages, :, slots], v = unpack(v)
    shape = (len(positions), cache.num_heads, cache.head_dim)
    cache.k[pages, :, :, slots] = k.reshape(shape)
    cache.v[pages, :, slots, : cache.head_dim] = v.reshape(shape)
