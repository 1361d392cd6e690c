"""Launcher of ``head``: see ``specrt.reference.head``."""

from __future__ import annotations

from typing import Any

from .._ext.host_ops import Tape, record_head
from ..acts import Acts
from ..array_checks import check_head
from .acts import check_exact
from .weights import HostWeight


def head(
    tape: Tape,
    weight: HostWeight,
    acts: Acts,
    *,
    ids: Any,
    logits: Any | None,
    softcap: float,
    scale: float = 1.0,
) -> None:
    """Record ``head``: ids [T] int32, logits [T, V] f32 or None."""
    num_rows = check_head(weight, acts, ids, logits, scale)
    check_exact(acts, num_rows)
    record_head(tape, weight, acts, ids, logits, softcap, scale)
