"""A mixture of experts: feed-forwards of which each row takes a few."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..acts import Acts, Int8Rows
from ..experts import Experts, Routed
from ..ops import Activation
from .fma import fma32
from .glu import ACTIVATIONS, glu
from .linear import product

Array = Any


def moe(
    acts: Acts,
    experts: Experts,
    routed: Routed,
    *,
    activation: Activation,
    out: Array,
    add: Array | None = None,
    shared: Array | None = None,
    shared_gate: Array | None = None,
) -> None:
    """Write ``sum_r w_r down_e(act(gate_e h) * (up_e h)) (+ sigmoid(g) shared) (+ add)``.

    Expert e of rank r is ``ids[t, r]``, w_r ``weights[t, r]``. Each product is what ``linear``
    makes of that expert's matrix, the gated rows are prepared as ``quantize`` does. The sum is a
    chain of fmas from zero, ascending in rank; the shared expert's row is one more fma, and
    ``add`` is added last.

    Args:
        acts: T rows of width D, as gate and up read them.
        experts: gate and up [E, F, D], down [E, D, F].
        routed: ``ids`` and ``weights`` [T, k].
        out: [T, D] f32; it may be add.
        add: [T, D] f32.
        shared: [T, D] f32, of an expert that all rows go to.
        shared_gate: [T, 1] f32, g; given with ``shared``.
    """
    results = np.empty((*routed.ids.shape, out.shape[1]), np.float32)
    for expert in np.unique(routed.ids).tolist():
        chosen = routed.ids == expert
        rows = taken(acts, np.nonzero(chosen)[0])
        gate, up = (product(side.expert(expert), rows) for side in (experts.gate, experts.up))
        down = experts.down.expert(expert)
        gated = Acts.empty(len(gate), gate.shape[1], [down])
        glu(gate, up, activation=activation, out=None, acts=gated)
        results[chosen] = product(down, gated)
    total = np.zeros_like(out)
    for rank in range(routed.ids.shape[1]):
        total = fma32(routed.weights[:, rank, None], results[:, rank], total)
    if shared is not None and shared_gate is not None:
        with np.errstate(over="ignore"):
            share = ACTIVATIONS["sigmoid"](shared_gate)
        total = fma32(share, shared, total)
    out[:] = total if add is None else total + add


def taken(acts: Acts, rows: Array) -> Acts:
    """A copy of some rows, in that order."""
    first, second = (
        side and Int8Rows(side.q[rows], side.d[rows], side.sums[rows])
        for side in (acts.first, acts.second)
    )
    return Acts(len(rows), acts.width, None if acts.x is None else acts.x[rows], first, second)
