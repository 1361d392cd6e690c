"""Calls of the ops that choose among the candidates of a block: lattice and markov."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from specrt.bench.cases import LatticeCase, MarkovCase
from specrt.bench.op_calls import Call, poison, random_rows, random_tensor, recorded
from specrt.ops import Array, Ops


def bind_lattice(ops: Ops, case: LatticeCase) -> Call:
    """Named candidates of one block."""
    tensor = random_tensor(case.type, case.vocab, case.width)
    rng = np.random.default_rng(9)
    ids = ops.buffer((case.rows, case.k), np.int32)
    chosen = [rng.choice(case.vocab, case.k, replace=False) for _ in range(case.rows)]
    ops.assign(ids, np.stack(chosen).astype(np.int32))
    scores = ops.buffer((1, case.k + case.k**2 * (case.rows - 1)), np.float32)
    books = {"predecessor": ops.table(tensor), "successor": ops.table(tensor)}
    names = _names(ops, case.vocab)
    logits = random_rows(ops, case.rows, case.k, 4)
    gates = random_rows(ops, case.rows, case.width, 5)
    step = _block(ops, case.rows)
    op = partial(ops.lattice, ids, logits, gates, step, **books, names=names, scores=scores)
    num_read = 1 + case.k * (2 * case.rows - 1)
    return recorded(ops, op, num_read * tensor.raw.shape[1], scores)


def bind_markov(ops: Ops, case: MarkovCase) -> Call:
    """One block, with a confidence head and names; logits are biased in place."""
    before, after = (
        random_tensor(case.type, rows, case.width) for rows in (case.outputs + 7, case.outputs)
    )
    predecessor, successor = ops.table(before), ops.weight(after, case.role)
    logits = random_rows(ops, case.rows, case.outputs, 4)
    given = np.array(ops.to_host(logits))
    hidden = random_rows(ops, case.rows, case.hidden, 5)
    confidence = random_rows(ops, 1, case.hidden + case.width + 1, 6)[0]
    ops.assign(confidence, 0.003 * ops.to_host(confidence))
    ids = ops.buffer((1, case.rows), np.int32)
    confidences = ops.buffer((1, case.rows), np.float32)
    op = partial(
        ops.markov, logits, hidden, _block(ops, case.rows),
        predecessor=predecessor, successor=successor, confidence=confidence,
        names=_names(ops, case.outputs), acts=ops.acts(1, case.width, [successor]), ids=ids,
        confidences=confidences,
    )  # fmt: skip
    with ops.record() as program:
        op()

    def results() -> list[Array]:
        ops.assign(logits, given)
        for array in (ids, confidences):
            ops.assign(array, poison(array))
        program.run()
        return [ops.to_host(array) for array in (logits, ids, confidences)]

    return Call(op, program.run, results, case.rows * (after.nbytes + before.raw.shape[1]))


def _names(ops: Ops, num_ids: int) -> Array:
    """Each id's, in another order."""
    names = ops.buffer((num_ids,), np.int32)
    ops.assign(names, np.random.default_rng(8).permutation(num_ids).astype(np.int32))
    return names


def _block(ops: Ops, num_rows: int) -> Any:
    """A step of one block, behind a token."""
    step = ops.step_inputs(num_rows, 1, 1, 0)
    step.tokens[0] = 3
    step.row_offsets[:2] = 0, num_rows
    step.publish()
    return step
