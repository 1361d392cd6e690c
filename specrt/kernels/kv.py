"""Cached keys and values of the CUDA op set: pages as ``cuda/kv.cuh`` describes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import UnsupportedError
from ..ops import PAGE, KVType
from ..reference.kv import DTYPES, Q8_BLOCK, check_kv, pack, unpack

Array = Any

ROW_BYTES = 16
"""What the bytes of a row are a multiple of."""

MOST_DIMS = 512
"""Of a head: with more, four queries do not fit the shared memory of a block of ``attention``."""


class KernelKVLayer:
    """One layer's pages.

    ``k`` and ``v`` [pages, Hkv, 64, Dh rounded up to 16 bytes] in f32, f16 or int8; for ``q8_0``
    the f16 scales ``k_scale`` and ``v_scale`` [pages, Hkv, Dh / 32, 64], else None. What lies
    behind the Dh values of a row is zero.

    Args:
        zeros: makes an array of the device from shape and dtype.

    Raises:
        UnsupportedError: a head cannot be stored in that type, or has an odd number of dims or too
            many.
    """

    def __init__(
        self,
        num_pages: int,
        num_heads: int,
        head_dim: int,
        kv_type: KVType,
        ring_pages: int,
        zeros: Callable[[tuple[int, ...], Any], Array],
    ) -> None:
        check_kv(kv_type, head_dim)
        if head_dim % 2 or head_dim > MOST_DIMS:
            raise UnsupportedError(
                f"a head has {head_dim} dims; CUDA's kernels take even numbers up to {MOST_DIMS}: "
                "use device='cpu'"
            )
        self.kv_type, self.ring_pages = kv_type, ring_pages
        self.num_heads, self.head_dim = num_heads, head_dim
        dtype = np.dtype(DTYPES.get(kv_type, np.int8))
        row_dims = -(-head_dim * dtype.itemsize // ROW_BYTES) * ROW_BYTES // dtype.itemsize
        self.k, self.v = (zeros((num_pages, num_heads, PAGE, row_dims), dtype) for _ in "kv")
        self.k_scale = self.v_scale = None
        if kv_type == "q8_0":
            shape = (num_pages, num_heads, head_dim // Q8_BLOCK, PAGE)
            self.k_scale, self.v_scale = (zeros(shape, np.float16) for _ in "kv")


def kv_defines(cache: KernelKVLayer) -> tuple[str, ...]:
    """With which ``rope_kv`` and ``attention`` are compiled for a layer: see ``Device.launch``."""
    return (f"KV_TYPE {cache.kv_type.upper()}",)


def kv_read(
    cache: KernelKVLayer,
    pages: Array,
    positions: Array,
    *,
    to_host: Callable[[Array], Array],
    to_device: Callable[[Array], Array],
) -> tuple[Array, Array]:
    """Keys and values in the form in which sessions are saved: see ``specrt.reference.kv``.

    Args:
        pages, positions: NumPy arrays, as the results are.
        to_host, to_device: make a NumPy array of one of the device, and the reverse.
    """
    at, slots = to_device(pages), to_device(positions % PAGE)
    k, v = (to_host(x[at, :, slots, : cache.head_dim]) for x in (cache.k, cache.v))
    if cache.k_scale is None or cache.v_scale is None:
        return k, v
    blocks = (len(positions), cache.num_heads, -1, Q8_BLOCK)
    k_scale, v_scale = (to_host(x[at, :, :, slots]) for x in (cache.k_scale, cache.v_scale))
    return pack(k_scale, k.reshape(blocks)), pack(v_scale, v.reshape(blocks))


def kv_write(
    cache: KernelKVLayer,
    pages: Array,
    positions: Array,
    k: Array,
    v: Array,
    *,
    to_device: Callable[[Array], Array],
) -> None:
    """Store what ``kv_read`` gave, bit for bit."""
    at, slots = to_device(pages), to_device(positions % PAGE)
    shape = (len(positions), cache.num_heads, cache.head_dim)
    for values, scales, stored in (
        (cache.k, cache.k_scale, k),
        (cache.v, cache.v_scale, v),
    ):
        if scales is not None:
            scale, stored = unpack(stored)
            scales[at, :, :, slots] = to_device(scale)
        values[at, :, slots, : cache.head_dim] = to_device(stored.reshape(shape))
