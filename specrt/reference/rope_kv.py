"""Head norms, rotary embedding, and storing keys and values."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ops import PAGE, Rope, StepInputs
from .fma import fma32
from .kv import ReferenceKVLayer, encode, page_of
from .rms_norm import normed

Array = Any


def rope_kv(
    q: Array,
    k: Array,
    v: Array,
    cache: ReferenceKVLayer,
    step: StepInputs,
    *,
    rope: Rope,
    q_norm: Array | None = None,
    k_norm: Array | None = None,
    eps: float = 0.0,
) -> None:
    """Norm and rotate the heads of q and k in place, and store k and v at the rows' positions.

    A head is first normed as ``rms_norm`` does, if it has a norm. Pair i of the rotated dims,
    (a, b) = ``(x[i], x[i + n_rot / 2])`` for "neox" and ``(x[2 i], x[2 i + 1])`` for
    "interleaved", becomes ``(fma(b, -sin, a cos), fma(a, sin, b cos))``.

    Args:
        q: [T, H * Dh] f32.
        k, v: [T, Hkv * Dh] f32; k is left normed and rotated.
        cache: Takes ``kv.encode`` of k and v.
        step: ``positions`` and ``row_seqs`` of the T rows, and the tables of pages.
        rope: ``table[position, i]`` is (cos, sin).
        q_norm, k_norm: [Dh] f32.
        eps: Of the norms.
    """
    positions = step.positions[: len(q)]
    for x, norm in ((q, q_norm), (k, k_norm)):
        heads = x.reshape(len(x), -1, cache.head_dim)
        if norm is not None:
            heads[:] = normed(heads, norm, eps)
        _rotate(heads, rope, positions)
    heads_shape = (len(k), cache.num_heads, cache.head_dim)
    stored_k, stored_v = (encode(x.reshape(heads_shape), cache.kv_type) for x in (k, v))
    for row, position in enumerate(positions.tolist()):
        page = page_of(cache, step, step.row_seqs[row], position // PAGE)
        cache.k[page, position % PAGE] = stored_k[row]
        cache.v[page, position % PAGE] = stored_v[row]


def _rotate(heads: Array, rope: Rope, positions: Array) -> None:
    """Rotate [T, heads, Dh] in place."""
    half = rope.table.shape[1]
    cos, sin = np.moveaxis(rope.table[positions][:, None], -1, 0)  # [T, 1, half] each
    rotated = heads[..., : 2 * half]
    if rope.pairing == "neox":
        first, second = rotated[..., :half], rotated[..., half:]
    else:
        first, second = rotated[..., ::2], rotated[..., 1::2]
    a, b = first.copy(), second.copy()
    first[:] = fma32(b, -sin, a * cos)
    second[:] = fma32(a, sin, b * cos)
