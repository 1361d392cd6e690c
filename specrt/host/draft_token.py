"""Launcher of ``draft_token``: see ``specrt.reference.draft_token``."""

from __future__ import annotations

from typing import Any

from .._ext.host_ops import Tape, record_draft_token
from ..array_checks import check_draft_token
from ..state.step import StepInputs

Array = Any


def draft_token(
    tape: Tape,
    ids: Array,
    logits: Array,
    step: StepInputs,
    *,
    names: Array | None,
    gates: Array,
    tokens: Array,
    shares: Array,
    stop: Array,
) -> None:
    """Record ``draft_token``: ids, logits [B, k], tokens, shares [>= B, R], gates [B], stop [1]."""
    check_draft_token(ids, logits, step, names, gates, tokens, shares, stop)
    record_draft_token(tape, ids, logits, step, names, gates, tokens, shares, stop)
