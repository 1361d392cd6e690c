"""Launcher of ``glu``: see ``specrt.reference.glu``."""

from __future__ import annotations

from typing import Any

from .._ext.host_ops import ACTIVATIONS, Tape, record_glu
from ..acts import Acts
from ..array_checks import check_glu
from ..errors import UnsupportedError
from ..ops import Activation

Array = Any


def glu(
    tape: Tape,
    gate: Array,
    up: Array,
    *,
    activation: Activation,
    out: Array | None,
    acts: Acts | None = None,
) -> None:
    """Record ``glu``: gate, up and out [T, F] f32."""
    if activation not in ACTIVATIONS:
        raise UnsupportedError(f"glu: activation {activation!r}; expected {', '.join(ACTIVATIONS)}")
    check_glu(gate, up, out, acts)
    record_glu(tape, gate, up, activation, out, acts)
