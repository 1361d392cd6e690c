"""Launcher of ``causal_conv``: see ``specrt.reference.causal_conv``."""

from __future__ import annotations

from typing import Any

from .._ext.host_ops import Tape, record_causal_conv
from ..array_checks import check_causal_conv
from ..state.recurrent import RecurrentLayer
from ..state.step import StepInputs

Array = Any


def causal_conv(
    tape: Tape, u: Array, weight: Array, layer: RecurrentLayer, step: StepInputs, *, out: Array
) -> None:
    """Record ``causal_conv``: u and out [T, C] f32, weight [C, K] f32."""
    check_causal_conv(u, weight, layer, step, out)
    record_causal_conv(tape, u, weight, layer, step, out)
