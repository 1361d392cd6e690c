"""Launcher of ``top_k``: see ``specrt.reference.top_k``."""

from __future__ import annotations

from typing import Any

from .._ext.host_ops import Tape, record_top_k
from ..array_checks import check_top_k


def top_k(tape: Tape, logits: Any, *, ids: Any, values: Any) -> None:
    """Record ``top_k``: logits [T, V] f32, ids [T, k] int32, values [T, k] f32."""
    check_top_k(logits, ids, values)
    record_top_k(tape, logits, ids, values)
