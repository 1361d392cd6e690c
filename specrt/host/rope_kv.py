"""Launcher of ``rope_kv``: see ``specrt.reference.rope_kv``."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._ext.host_ops import PAIRINGS, Tape, record_rope_kv
from ..array_checks import check
from ..errors import MismatchError, UnsupportedError
from ..ops import Rope
from ..state.step import StepInputs
from .checks import check_step
from .kv import HostKVLayer

Array = Any


def rope_kv(
    tape: Tape,
    q: Array,
    k: Array,
    v: Array,
    cache: HostKVLayer,
    step: StepInputs,
    *,
    rope: Rope,
    q_norm: Array | None = None,
    k_norm: Array | None = None,
    eps: float = 0.0,
) -> None:
    """Record ``rope_kv``: q [T, H * Dh], k and v [T, Hkv * Dh], norms [Dh], all f32."""
    dims = cache.head_dim
    check("rope_kv: q", q, np.float32, (len(q), q.shape[-1] // dims * dims))
    for name, array in (("k", k), ("v", v)):
        check(f"rope_kv: {name}", array, np.float32, (len(q), cache.num_heads * dims))
    for name, norm in (("q_norm", q_norm), ("k_norm", k_norm)):
        if norm is not None:
            check(f"rope_kv: {name}", norm, np.float32, (dims,))
    positions, pairs = rope.table.shape[:2]
    check("rope_kv: the rope table", rope.table, np.float32, (positions, pairs, 2))
    if 2 * pairs > dims:
        raise MismatchError(f"rope_kv: the table rotates {2 * pairs} dims; a head has {dims}")
    if rope.pairing not in PAIRINGS:
        raise UnsupportedError(f"rope_kv: pairing {rope.pairing!r}; expected {', '.join(PAIRINGS)}")
    check_step("rope_kv", step, len(q), cache)
    record_rope_kv(tape, q, k, v, cache, step, rope, q_norm, k_norm, eps)
