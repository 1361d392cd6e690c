"""Calls of the ops that drafters have beside those of a target."""

from __future__ import annotations

from typing import Any

import numpy as np

from specrt.bench.cases import BlockConvCase, DraftCase, MtpCase, RingsCase, RowsCase
from specrt.bench.op_calls import (
    Call,
    int8_arrays,
    poison,
    preparing,
    random_rows,
    random_tensor,
    recorded,
)
from specrt.ops import PAGE, Array, Ops

START = 1003
"""The first row's position."""


def bind_store_rows(ops: Ops, case: RowsCase) -> Call:
    """Into a ring of as many rows, from its middle on."""
    x, step = random_rows(ops, case.rows, case.width), _rows_of_one(ops, case.rows)
    out = ops.buffer((1, case.rows, case.width), np.float32)
    return recorded(ops, lambda: ops.store_rows(x, step, out=out), 2 * x.nbytes, out)


def bind_load_rows(ops: Ops, case: RingsCase) -> Call:
    """Of rings that are full, from the middle of some on."""
    rings = [
        random_rows(ops, case.rows + number, case.width, number).reshape(1, -1, case.width)
        for number in range(case.rings)
    ]
    step, width = _rows_of_one(ops, case.rows), case.rings * case.width
    acts: Any = ops.acts(case.rows, width, [ops.weight(random_tensor("Q8_0", 1, width), "int8x2")])
    out = int8_arrays(acts)
    return recorded(
        ops,
        lambda: ops.load_rows(rings, step, acts=acts),
        4 * case.rows * width + sum(array.nbytes for array in out),
        *out,
        read=lambda: int8_arrays(acts.plain()),
    )


def bind_block_conv(ops: Ops, case: BlockConvCase) -> Call:
    """Over one block, by the second side's taps."""
    x, step = random_rows(ops, case.rows, case.width), _rows_of_one(ops, case.rows)
    num_taps = 2 * case.taps * (case.width // case.group)
    dynamic = random_rows(ops, case.rows, num_taps, 18)
    base = random_rows(ops, 2 * case.taps, case.width, 19).reshape(2, case.taps, case.width)
    add = random_rows(ops, case.rows, case.width, 20) if case.add else None
    out = ops.buffer(x.shape, np.float32)
    num_bytes = (3 if case.add else 2) * x.nbytes + (dynamic.nbytes + base.nbytes) // 2

    def op(out: Array | None, acts: Any | None) -> None:
        ops.block_conv(x, dynamic, base, step, side=1, out=out, add=add, acts=acts)

    if case.prepares:
        return preparing(ops, op, num_bytes, out)
    return recorded(ops, lambda: op(out, None), num_bytes, out)


def bind_scale(ops: Ops, case: RowsCase) -> Call:
    """By a number, and others are added."""
    x, add = (random_rows(ops, case.rows, case.width, seed) for seed in (0, 21))
    out = ops.buffer(x.shape, np.float32)
    return recorded(ops, lambda: ops.scale(x, 0.7, out=out, add=add), 3 * x.nbytes, out)


def bind_mtp_project(ops: Ops, case: MtpCase) -> Call:
    """Behind hidden rows of one sequence."""
    table = random_tensor(case.type, case.vocab, case.width)
    matrix = random_tensor(case.type, case.outputs, 2 * case.width)
    embedding, projection = ops.table(table), ops.weight(matrix, "int8x2")
    hidden = random_rows(ops, case.rows + 3, case.width, 15).reshape(1, -1, case.width)
    norms = [random_rows(ops, 1, case.width, seed)[0] for seed in (16, 17)]
    acts = ops.acts(case.rows, 2 * case.width, [projection])
    step = _rows_of_one(ops, case.rows)
    step.tokens[: case.rows] = np.random.default_rng(2).integers(0, case.vocab, case.rows)
    step.publish()
    out = ops.buffer((case.rows, case.outputs), np.float32)

    def op() -> None:
        ops.mtp_project(
            embedding, hidden, projection, step,
            embedding_norm=norms[0], hidden_norm=norms[1], scale=1.5, eps=1e-6, acts=acts, out=out,
        )  # fmt: skip

    return recorded(ops, op, matrix.nbytes + case.rows * table.raw.shape[1], out)


def bind_draft_token(ops: Ops, case: DraftCase) -> Call:
    """At different positions, behind gates that no share reaches."""
    shape = (case.rows, case.k)
    values = np.random.default_rng(4).standard_normal(shape, dtype=np.float32)
    logits, gates = ops.buffer(shape, np.float32), ops.buffer((case.rows,), np.float32)
    ops.assign(logits, -np.sort(-values, axis=1))
    ops.assign(gates, np.full(case.rows, 2, np.float32))
    ids, names = ops.buffer(shape, np.int32), ops.buffer((30_000,), np.int32)
    ops.assign(ids, np.random.default_rng(5).integers(0, 30_000, shape).astype(np.int32))
    ops.assign(names, np.arange(10_000, 40_000, dtype=np.int32))
    step = ops.step_inputs(case.rows, case.rows, START // PAGE + 2, 0)
    tokens, shares = (ops.buffer((case.rows, 16), kind) for kind in (np.int32, np.float32))
    stop = ops.buffer((1,), np.int32)

    def op() -> None:
        ops.draft_token(
            ids, logits, step, names=names, gates=gates, tokens=tokens, shares=shares, stop=stop
        )

    with ops.record() as program:
        op()

    def results() -> list[Array]:
        """Of the rings what was written; the step is as before the first call."""
        rows = np.arange(case.rows)
        step.positions[: case.rows] = START + 3 * rows
        step.publish()
        for array in (tokens, shares, stop):
            ops.assign(array, poison(array))
        program.run()
        places = (START + 3 * rows + 1) % 16
        written = [ops.to_host(ring)[rows, places, None] for ring in (tokens, shares)]
        return [*written, ops.to_host(stop)]

    return Call(op, program.run, results, ids.nbytes + logits.nbytes)


def _rows_of_one(ops: Ops, num_rows: int) -> Any:
    """A step of one sequence's rows."""
    step = ops.step_inputs(num_rows, 1, 1, 0)
    step.positions[:num_rows] = START + np.arange(num_rows)
    step.row_seqs[:num_rows], step.slots[0] = 0, 0
    step.row_offsets[:2] = 0, num_rows
    step.publish()
    return step
