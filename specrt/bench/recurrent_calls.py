"""Calls of the ops that keep states: behind a state, and rows that it lacks."""

from __future__ import annotations

from typing import Any

import numpy as np

from specrt.bench.cases import RecurrentCase
from specrt.bench.op_calls import Call, random_rows, recorded
from specrt.ops import Ops

START = 1000
"""The first row's position."""


def bind_causal_conv(ops: Ops, case: RecurrentCase) -> Call:
    """Behind rows that are logged, and a tail."""
    shape = case.shape
    u = random_rows(ops, case.rows, shape.channels, 4)
    weight = random_rows(ops, shape.channels, shape.conv_kernel, 5)
    layer, step = _recurrent(ops, case)
    out = ops.buffer(u.shape, np.float32)
    num_bytes = 3 * u.nbytes  # read, and written twice
    return recorded(ops, lambda: ops.causal_conv(u, weight, layer, step, out=out), num_bytes, out)


def bind_gated_delta(ops: Ops, case: RecurrentCase) -> Call:
    """Behind a state and rows that it lacks; the state is read once, and written once."""
    shape = case.shape
    qkv = random_rows(ops, case.rows, shape.channels, 4)
    alpha, beta = (random_rows(ops, case.rows, shape.value_heads, seed) for seed in (5, 6))
    a, dt_bias = (random_rows(ops, 1, shape.value_heads, seed)[0] for seed in (7, 8))
    ops.assign(a, -np.abs(ops.to_host(a)))
    layer, step = _recurrent(ops, case)
    out = ops.buffer((case.rows, shape.value_heads * shape.value_dim), np.float32)

    def op() -> None:
        ops.gated_delta(qkv, alpha, beta, layer, step, a=a, dt_bias=dt_bias, eps=1e-6, out=out)

    states = 2 * 4 * shape.value_heads * shape.key_dim * shape.value_dim
    return recorded(ops, op, states + qkv.nbytes + out.nbytes, out)


def _recurrent(ops: Ops, case: RecurrentCase) -> tuple[Any, Any]:
    """A layer of one sequence with something in it, and a step behind that."""
    layer, rng = ops.recurrent_layer(case.shape, 1), np.random.default_rng(10)
    for array, scale in (
        (layer.states, 0.1),
        (layer.tails, 1),
        (layer.log_u, 1),
        (layer.log_k, 0.1),
        (layer.log_delta, 1),
    ):
        ops.assign(array, (scale * rng.standard_normal(array.shape)).astype(np.float32))
    ops.assign(layer.log_decay, rng.random(layer.log_decay.shape).astype(np.float32))
    step = ops.step_inputs(case.rows, 1, 1, 0)
    step.positions[: case.rows] = np.arange(START, START + case.rows)
    step.row_offsets[:2] = 0, case.rows
    step.slots[0], step.live[0], step.pending[0] = 0, 1, case.pending
    step.publish()
    return layer, step
