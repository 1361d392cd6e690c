"""Launcher of ``attention``: see ``specrt.reference.attention``."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._ext.host_ops import Tape, record_attention
from ..array_checks import check
from ..errors import MismatchError
from ..state.step import StepInputs
from .checks import check_step
from .kv import HostKVLayer

Array = Any


def attention(
    tape: Tape,
    q: Array,
    cache: HostKVLayer,
    step: StepInputs,
    *,
    scale: float,
    window: int,
    out: Array,
) -> None:
    """Record ``attention``: q and out [T, H * Dh] f32."""
    group = cache.num_heads * cache.head_dim
    check("attention: q", q, np.float32, (len(q), max(1, q.shape[-1] // group) * group))
    check("attention: out", out, np.float32, q.shape)
    check_step("attention", step, len(q), cache)
    if not 0 <= window < 2**31 or (cache.ring_pages and window == 0):
        raise MismatchError(
            f"attention: window {window} on a layer with {cache.ring_pages} ring pages; "
            "expected a positive window of 31 bits for a ring, or 0 for all positions"
        )
    record_attention(tape, q, cache, step, scale, window, out)
