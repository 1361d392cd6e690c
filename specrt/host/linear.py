"""Launcher of ``linear``: see ``specrt.reference.linear``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .._ext.host_ops import MAX_PAIRS, Tape, record_linear
from ..acts import Acts
from ..array_checks import check
from ..errors import MismatchError
from .weights import HostWeight


def linear(
    tape: Tape,
    pairs: Sequence[tuple[HostWeight, Any]],
    acts: Acts,
    *,
    add: Any | None = None,
) -> None:
    """Record ``linear`` for up to eight pairs of a weight [N, K] and its out [T, N] f32."""
    if not 0 < len(pairs) <= MAX_PAIRS:
        raise MismatchError(f"linear: {len(pairs)} pairs; expected 1 to {MAX_PAIRS}")
    num_rows = len(pairs[0][1])
    for weight, out in pairs:
        check("linear: out", out, np.float32, (num_rows, weight.shape[0]))
        acts.check_readable(weight, num_rows)
    if add is not None:
        if len(pairs) != 1:
            raise MismatchError(f"linear: add goes to one out; there are {len(pairs)} pairs")
        check("linear: add", add, np.float32, pairs[0][1].shape)
    record_linear(tape, list(pairs), acts, add)
