"""Launcher of ``rope_kv``: see ``specrt.reference.rope_kv``."""

from __future__ import annotations

from typing import Any

from .._ext.host_ops import Tape, record_rope_kv
from ..array_checks import check_rope_kv
from ..ops import Rope
from ..state.step import StepInputs
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
    check_rope_kv(q, k, v, cache, step, rope, q_norm, k_norm)
    record_rope_kv(tape, q, k, v, cache, step, rope, q_norm, k_norm, eps)
