"""Launcher of ``cuda/draft_token.cu``: see ``specrt.reference.draft_token``."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..array_checks import check_draft_token
from ..ops import PAGE
from ..state.step import StepInputs
from .device import Device

Array = Any

THREADS = 256
SHARED_BYTES = 4 * (THREADS // 32)


def draft_token(
    device: Device,
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
    """Launch ``draft_token``: ids, logits [B, k], tokens, shares [>= B, R], gates [B], stop [1]."""
    check_draft_token(ids, logits, step, names, gates, tokens, shares, stop)
    last = step.page_table.shape[1] * PAGE - 1
    arrays = (ids, logits, names, gates, step.tokens, step.positions, tokens, shares, stop)
    sizes = map(np.int32, (*ids.shape, tokens.shape[1], last))
    device.launch("draft_token", "draft_token", (1,), THREADS, (*arrays, *sizes), SHARED_BYTES)
