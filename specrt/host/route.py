"""Launcher of ``route``: see ``specrt.reference.route``."""

from __future__ import annotations

from typing import Any

from .._ext.host_ops import Tape, record_route
from ..array_checks import check_route
from ..experts import Routed


def route(tape: Tape, logits: Any, *, out: Routed) -> None:
    """Record ``route``: logits [T, E] f32, ids and weights [T, k]."""
    check_route(logits, out)
    record_route(tape, logits, out.ids, out.weights)
