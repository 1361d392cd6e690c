"""Launcher of ``lattice``: see ``specrt.reference.lattice``."""

from __future__ import annotations

from typing import Any

from .._ext.host_ops import Tape, record_lattice
from ..array_checks import check_lattice
from ..state.step import StepInputs
from .weights import HostTable

Array = Any


def lattice(
    tape: Tape,
    ids: Array,
    logits: Array,
    gates: Array,
    step: StepInputs,
    *,
    predecessor: HostTable,
    successor: HostTable,
    names: Array | None,
    scores: Array,
) -> None:
    """Record ``lattice``: ids, logits [B n, k], gates [B n, R], scores [B, k + k k (n - 1)]."""
    check_lattice(ids, logits, gates, step, predecessor, successor, names, scores)
    record_lattice(tape, ids, logits, gates, step, predecessor, successor, names, scores)
