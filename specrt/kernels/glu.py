"""Launcher of ``cuda/glu.cu``: see ``specrt.reference.glu``."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np

from ..acts import Acts
from ..array_checks import check_glu
from ..errors import UnsupportedError
from ..ops import Activation
from .checks import aligned
from .device import Device
from .quantize import acts_arguments, plain_rows, quantize

Array = Any

THREADS = 256
ACTIVATIONS = get_args(Activation)


def glu(
    device: Device,
    gate: Array,
    up: Array,
    *,
    activation: Activation,
    out: Array | None,
    acts: Acts | None = None,
) -> None:
    """Launch ``glu``: gate, up and out [T, F] f32."""
    if activation not in ACTIVATIONS:
        raise UnsupportedError(f"glu: activation {activation!r}; expected {', '.join(ACTIVATIONS)}")
    check_glu(gate, up, out, acts)
    count = gate.size
    if not count:
        return
    if acts is not None and acts.first is not None:
        form = "acts_x4" if aligned(16, gate, up, out, acts.x) else "acts_x1"
        args = (gate, up, out, np.int64(count), *acts_arguments(acts))
    else:
        written = plain_rows(out, acts, len(gate))
        form = "x4" if count % 4 == 0 and aligned(16, gate, up, written) else "x1"
        args = (gate, up, written, np.int64(count))
    grid = (-(-count // (4 * THREADS)),)
    device.launch("glu", f"glu_{activation}_{form}", grid, THREADS, args)
    if acts is not None and acts.first is None and out is not None:
        quantize(device, out, out=acts)
