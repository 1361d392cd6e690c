"""Launcher of ``quantize``: see ``specrt.reference.quantize``."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._ext.host_ops import Tape, record_quantize
from ..acts import Acts
from ..array_checks import check
from ..errors import MismatchError


def quantize(tape: Tape, x: Any, *, out: Acts) -> None:
    """Record ``quantize`` of x [T, K] f32; ``out`` may have more rows."""
    check("quantize: x", x, np.float32, (len(x), out.width))
    if out.num_rows < len(x):
        raise MismatchError(f"quantize: x has {len(x)} rows; the acts hold {out.num_rows}")
    record_quantize(tape, x, out)
