"""Launcher of ``accept``: see ``specrt.reference.accept``."""

from __future__ import annotations

from typing import Any

from .._ext.host_ops import Tape, record_accept
from ..array_checks import check_accept
from ..state.step import StepInputs

Array = Any


def accept(tape: Tape, ids: Array, step: StepInputs, *, out: Array) -> None:
    """Record ``accept``: ids [T] int32, out [B, 3] int32."""
    check_accept(ids, step, out)
    record_accept(tape, ids, step, out)
