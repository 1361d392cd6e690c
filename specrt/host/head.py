"""Launcher of ``head``: see ``specrt.reference.head``."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._ext.host_ops import Tape, record_head
from ..acts import Acts
from ..array_checks import check
from .acts import check_exact
from .weights import HostWeight


def head(
    tape: Tape,
    weight: HostWeight,
    acts: Acts,
    *,
    ids: Any,
    logits: Any | None,
    softcap: float,
) -> None:
    """Record ``head``: ids [T] int32, logits [T, V] f32 or None."""
    check("head: ids", ids, np.int32, (len(ids),))
    acts.check_readable(weight, len(ids))
    check_exact(acts, len(ids))
    if logits is not None:
        check("head: logits", logits, np.float32, (len(ids), weight.shape[0]))
    record_head(tape, weight, acts, ids, logits, softcap)
