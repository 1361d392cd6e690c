"""Launcher of ``store_rows``: see ``specrt.reference.store_rows``."""

from __future__ import annotations

from typing import Any

from .._ext.host_ops import Tape, record_store_rows
from ..array_checks import check_store_rows
from ..state.step import StepInputs

Array = Any


def store_rows(tape: Tape, x: Array, step: StepInputs, *, out: Array) -> None:
    """Record ``store_rows``: x [T, D] f32, out [slots, R, D] f32."""
    check_store_rows(x, step, out)
    record_store_rows(tape, x, step, out)
