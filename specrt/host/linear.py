"""Launcher of ``linear``: see ``specrt.reference.linear``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .._ext.host_ops import MAX_PAIRS, Tape, record_linear
from ..acts import Acts
from ..array_checks import check_linear
from .acts import check_exact
from .weights import HostWeight


def linear(
    tape: Tape,
    pairs: Sequence[tuple[HostWeight, Any]],
    acts: Acts,
    *,
    add: Any | None = None,
) -> None:
    """Record ``linear`` for up to eight pairs of a weight [N, K] and its out [T, N] f32."""
    check_exact(acts, check_linear(pairs, acts, add, MAX_PAIRS))
    record_linear(tape, list(pairs), acts, add)
