"""Launcher of ``glu``: see ``specrt.reference.glu``."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._ext.host_ops import ACTIVATIONS, Tape, record_glu
from ..array_checks import check
from ..errors import UnsupportedError
from ..ops import Activation

Array = Any


def glu(tape: Tape, gate: Array, up: Array, *, activation: Activation, out: Array) -> None:
    """Record ``glu``: gate, up and out [T, F] f32."""
    if activation not in ACTIVATIONS:
        raise UnsupportedError(f"glu: activation {activation!r}; expected {', '.join(ACTIVATIONS)}")
    shape = (len(gate), gate.shape[-1])
    for name, array in (("gate", gate), ("up", up), ("out", out)):
        check(f"glu: {name}", array, np.float32, shape)
    record_glu(tape, gate, up, activation, out)
