"""Launcher of ``embed``: see ``specrt.reference.embed``."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._ext.host_ops import Tape, record_embed
from ..array_checks import check
from .weights import HostTable


def embed(tape: Tape, weight: HostTable, tokens: Any, *, scale: float, out: Any) -> None:
    """Record ``embed``: the first T of tokens int32, out [T, D] f32."""
    check("embed: out", out, np.float32, (len(out), weight.shape[1]))
    check("embed: tokens", tokens[: len(out)], np.int32, (len(out),))
    record_embed(tape, weight, tokens, scale, out)
