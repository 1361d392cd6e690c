"""Launcher of ``load_rows``: see ``specrt.reference.load_rows``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .._ext.host_ops import MAX_RINGS, Tape, record_load_rows
from ..acts import Acts
from ..array_checks import check_load_rows
from ..state.step import StepInputs

Array = Any


def load_rows(tape: Tape, rings: Sequence[Array], step: StepInputs, *, acts: Acts) -> None:
    """Record ``load_rows``: at most ``MAX_RINGS`` rings [slots, R, D] f32."""
    check_load_rows(rings, step, acts, MAX_RINGS)
    record_load_rows(tape, tuple(rings), step, acts)
