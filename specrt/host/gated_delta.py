"""Launcher of ``gated_delta``: see ``specrt.reference.gated_delta``."""

from __future__ import annotations

from typing import Any

from .._ext.host_ops import Tape, record_gated_delta
from ..array_checks import check_gated_delta
from ..state.recurrent import RecurrentLayer
from ..state.step import StepInputs

Array = Any


def gated_delta(
    tape: Tape,
    qkv: Array,
    alpha: Array,
    beta: Array,
    layer: RecurrentLayer,
    step: StepInputs,
    *,
    a: Array,
    dt_bias: Array,
    eps: float,
    out: Array,
    states_out: Array | None = None,
) -> None:
    """Record ``gated_delta``: qkv [T, C], alpha, beta [T, Hv], out [T, Hv * Dv] f32."""
    check_gated_delta(qkv, alpha, beta, layer, step, a, dt_bias, out, states_out)
    record_gated_delta(tape, qkv, alpha, beta, layer, step, a, dt_bias, eps, out, states_out)
