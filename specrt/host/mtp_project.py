"""Launcher of ``mtp_project``: see ``specrt.reference.mtp_project``."""

from __future__ import annotations

from typing import Any

from .._ext.host_ops import Tape, record_mtp_project
from ..acts import Acts
from ..array_checks import check_mtp_project
from ..state.step import StepInputs
from .acts import check_exact
from .linear import linear
from .weights import HostTable, HostWeight

Array = Any


def mtp_project(
    tape: Tape,
    embedding: HostTable,
    hidden: Array,
    projection: HostWeight,
    step: StepInputs,
    *,
    embedding_norm: Array,
    hidden_norm: Array,
    scale: float,
    eps: float,
    acts: Acts,
    out: Array,
) -> None:
    """Record ``mtp_project``: hidden [slots, R, D], norms [D], acts of T rows, out [T, N]."""
    check_mtp_project(embedding, hidden, step, embedding_norm, hidden_norm, acts, out)
    check_exact(acts, len(out))
    norms = (embedding_norm, hidden_norm)
    record_mtp_project(tape, embedding, hidden, step, norms, scale, eps, acts, len(out))
    linear(tape, [(projection, out)], acts)
