"""Launcher of ``cuda/quantize.cu``: see ``specrt.reference.quantize``."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..acts import Acts
from ..array_checks import check, check_acts
from ..errors import MismatchError
from .checks import aligned
from .copy import copy
from .device import Device

THREADS = 256


def quantize(device: Device, x: Any, *, out: Acts) -> None:
    """Launch ``quantize`` of x [T, K] f32; ``out``, laid out as the host's, may have more rows."""
    check("quantize: x", x, np.float32, (len(x), out.width))
    check_acts("quantize", out, x.shape)
    count = x.size
    if not count:
        return
    if out.first is None:
        if out.x is not None:
            copy(device, x, out=out.x[: len(x)])
        return
    form = "x4" if aligned(16, x, out.x) else "x1"
    args = (x, np.int64(count), *acts_arguments(out))
    num_blocks = -(-count // (4 * THREADS))
    device.launch("quantize", f"quantize_{form}", (num_blocks,), THREADS, args)


def acts_arguments(acts: Acts) -> tuple[Any, ...]:
    """What kernels take for acts with int8 rows, as ``Acts`` of ``quantize.cuh`` has it.

    Raises:
        MismatchError: the codes lie where no four can be written at once.
    """
    arrays: list[Any] = [acts.x]
    for rows in (acts.first, acts.second):
        arrays += (None, None, None) if rows is None else (rows.q, rows.d, rows.sums)
    if not aligned(4, arrays[1], arrays[4]):
        raise MismatchError("acts: codes start at no multiple of 4 bytes; use ops.acts(...)")
    return tuple(arrays)


def plain_rows(out: Any | None, acts: Acts | None, num_rows: int) -> Any:
    """What a kernel writes where it makes no int8 rows: ``out``, else the acts' own rows."""
    if out is not None:
        return out
    assert acts is not None and acts.x is not None
    return acts.x[:num_rows]
