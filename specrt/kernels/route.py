"""Launcher of ``cuda/route.cu``: see ``specrt.reference.route``."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..array_checks import check_route
from ..experts import Routed
from .device import Device

WARPS = 4


def route(device: Device, logits: Any, *, out: Routed) -> None:
    """Launch ``route``: logits [T, E] f32, ids and weights [T, k]."""
    check_route(logits, out)
    num_rows, num_experts = logits.shape
    if not num_rows:
        return
    sizes = (num_rows, num_experts, out.ids.shape[1])
    args = (logits, out.ids, out.weights, *map(np.int32, sizes))
    device.launch("route", "route", (-(-num_rows // WARPS),), 32 * WARPS, args)
