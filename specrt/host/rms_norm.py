"""Launcher of ``rms_norm``: see ``specrt.reference.rms_norm``."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._ext.host_ops import Tape, record_rms_norm
from .checks import check

Array = Any


def rms_norm(
    tape: Tape,
    x: Array,
    weight: Array | None,
    eps: float,
    *,
    out: Array,
    add: Array | None = None,
) -> None:
    """Record ``rms_norm``: x, out and add [T, D] f32, weight [D] f32."""
    check("rms_norm: x", x, np.float32, (len(x), x.shape[-1]))
    check("rms_norm: out", out, np.float32, x.shape)
    if weight is not None:
        check("rms_norm: weight", weight, np.float32, (x.shape[1],))
    if add is not None:
        check("rms_norm: add", add, np.float32, x.shape)
    record_rms_norm(tape, x, weight, eps, out, add)
