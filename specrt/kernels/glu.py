"""Launcher of ``cuda/glu.cu``: see ``specrt.reference.glu``."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np

from ..array_checks import check
from ..errors import UnsupportedError
from ..ops import Activation
from ._module import Device
from .checks import aligned

Array = Any

THREADS = 256
ACTIVATIONS = get_args(Activation)


def glu(device: Device, gate: Array, up: Array, *, activation: Activation, out: Array) -> None:
    """Launch ``glu``: gate, up and out [T, F] f32."""
    if activation not in ACTIVATIONS:
        raise UnsupportedError(f"glu: activation {activation!r}; expected {', '.join(ACTIVATIONS)}")
    shape = (len(gate), gate.shape[-1])
    for name, array in (("gate", gate), ("up", up), ("out", out)):
        check(f"glu: {name}", array, np.float32, shape)
    count = gate.size
    if not count:
        return
    form = "x4" if count % 4 == 0 and aligned(16, gate, up, out) else "x1"
    grid = (-(-count // (4 * THREADS)),)
    device.launch(
        "glu", f"glu_{activation}_{form}", grid, THREADS, (gate, up, out, np.int64(count))
    )
