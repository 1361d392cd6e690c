"""Calls over distinct copies of what an op reads: enough of them that no cache holds any.

Large matrices are a part, over and over: so they are there at once, and all of a result can be
checked.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, Final

import numpy as np

from specrt.bench.cases import AttentionCase, LinearCase
from specrt.bench.op_calls import Call, random_tensor
from specrt.bench.op_cases import (
    OPS,
    attention_call,
    filled_cache,
    head_call,
    linear_call,
    prepared_rows,
)
from specrt.bench.timing import WrongResultError
from specrt.kernels import KernelOps
from specrt.kernels.kv import KernelKVLayer
from specrt.kernels.weights import KernelWeight
from specrt.ops import Array

PART: Final = 512
"""Rows of a matrix that differ."""

COLD: Final = 4
"""Times the L2 that is read before anything is read again."""

MOST: Final = 128
"""Copies: what is so small that it would take more is read from the L2, as in a step."""


def copies(ops: KernelOps, op: str, cases: Sequence[Any], l2_bytes: int) -> list[list[Call]]:
    """Calls of cases that differ in their rows alone, for each copy of what they read."""
    found = _SOURCES.get(op, _bound(op))(ops, cases)
    first = next(found)
    number = -(-COLD * l2_bytes // min(call.num_bytes for call in first))
    return [first, *islice(found, number - 1 if number <= MOST else 0)]


def repeated(ops: KernelOps, part: KernelWeight, outputs: int) -> KernelWeight:
    """A matrix of so many rows: those of a smaller one, over and over."""
    whole = copy.copy(part)
    whole.shape = (outputs, part.shape[1])
    whole.tiles = ops.buffer((whole.num_tiles, *part.tiles.shape[1:]), np.uint8)
    tiles, room = (array.reshape(len(array), -1) for array in (part.tiles, whole.tiles))
    for start in range(0, len(room), len(tiles)):
        rows = room[start : start + len(tiles)]
        ops.copy(tiles[: len(rows)], out=rows)
    return whole


def _products(
    make: Callable[..., Call], ops: KernelOps, cases: Sequence[LinearCase]
) -> Iterator[list[Call]]:
    case = cases[0]
    tensor = random_tensor(case.type, min(PART, case.outputs), case.width)
    part = ops.weight(tensor, case.role)
    acts = [prepared_rows(ops, one, part) for one in cases]
    while True:
        weight = repeated(ops, part, case.outputs)
        num_bytes = weight.tiles.nbytes
        yield [
            _periodic(make(ops, one, weight, rows, num_bytes))
            for one, rows in zip(cases, acts, strict=True)
        ]


def _periodic(call: Call) -> Call:
    """The same, whose results are looked at beyond their part."""

    def results() -> list[Array]:
        found = call.results()
        for array in found:
            if (array[:, PART:] != array[:, :-PART]).any():
                raise WrongResultError("outputs of equal rows of a matrix differ")
        return found

    return replace(call, results=results)


def _attentions(ops: KernelOps, cases: Sequence[AttentionCase]) -> Iterator[list[Call]]:
    first = filled_cache(ops, cases[0])
    while True:
        cache = _copied(ops, first)
        yield [attention_call(ops, case, cache) for case in cases]


def _copied(ops: KernelOps, cache: KernelKVLayer) -> KernelKVLayer:
    pages = len(cache.k)
    twin = ops.kv_layer(pages, cache.num_heads, cache.head_dim, cache.kv_type, 0)
    for name in ("k", "v", "k_scale", "v_scale"):
        if getattr(cache, name) is not None:
            x, out = (getattr(one, name).reshape(pages, -1) for one in (cache, twin))
            ops.copy(x, out=out)
    return twin


def _bound(op: str) -> Callable[[KernelOps, Sequence[Any]], Iterator[list[Call]]]:
    def bound(ops: KernelOps, cases: Sequence[Any]) -> Iterator[list[Call]]:
        while True:
            yield [OPS[op].bind(ops, case) for case in cases]

    return bound


_SOURCES: Final[dict[str, Callable[[KernelOps, Sequence[Any]], Iterator[list[Call]]]]] = {
    "linear": lambda ops, cases: _products(linear_call, ops, cases),
    "head": lambda ops, cases: _products(head_call, ops, cases),
    "attention": _attentions,
}
