"""Launcher of ``markov``: see ``specrt.reference.markov``."""

from __future__ import annotations

from typing import Any

from .._ext.host_ops import Tape, record_markov
from ..acts import Acts
from ..array_checks import check_markov
from ..state.step import StepInputs
from .weights import HostTable, HostWeight

Array = Any


def markov(
    tape: Tape,
    logits: Array,
    hidden: Array,
    step: StepInputs,
    *,
    predecessor: HostTable,
    successor: HostWeight,
    confidence: Array | None,
    names: Array | None,
    acts: Acts,
    ids: Array,
    confidences: Array | None,
) -> None:
    """Record ``markov``: logits [B n, Vd], hidden [B n, D], acts of B rows, ids [B, n] int32."""
    outs = (acts, ids, confidences)
    check_markov(logits, hidden, step, predecessor, successor, confidence, names, *outs)
    record_markov(tape, logits, hidden, step, predecessor, successor, confidence, names, *outs)
