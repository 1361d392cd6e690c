"""Launcher of ``attention``: see ``specrt.reference.attention``."""

from __future__ import annotations

from typing import Any

from .._ext.host_ops import Tape, record_attention
from ..array_checks import check_attention
from ..state.step import StepInputs
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
    softcap: float = 0.0,
    ahead: bool = False,
    sinks: Array | None = None,
) -> None:
    """Record ``attention``: q and out [T, H * Dh] f32, sinks [H] f32."""
    check_attention(q, cache, step, window, softcap, ahead, sinks, out)
    record_attention(tape, q, cache, step, scale, window, softcap, ahead, sinks, out)
