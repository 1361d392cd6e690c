"""Calls of ops over random inputs, which can be run again and again, and looked at."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from specrt.bench.timing import WrongResultError
from specrt.gguf.reader import Tensor
from specrt.gguf.types import type_by_name
from specrt.ops import Array, Ops

ALIGNMENT = 64
"""Bytes, of a matrix: at least what a file gives it."""


@dataclass(frozen=True, slots=True)
class Call:
    """An op over its buffers.

    Args:
        op: one call; recorded where a program is being recorded.
        run: the same from a program of its own.
        results: runs it once, and gives what it wrote.
        num_bytes: of weights or of cached keys and values that a call reads; where an op has
            neither, of the rows in and out.
    """

    op: Callable[[], None]
    run: Callable[[], None]
    results: Callable[[], list[Array]]
    num_bytes: int


def random_rows(ops: Ops, rows: int, width: int, seed: int = 0) -> Array:
    """[rows, width] float32 of a normal distribution."""
    x = ops.buffer((rows, width), np.float32)
    ops.assign(x, np.random.default_rng(seed).standard_normal(x.shape, dtype=np.float32))
    return x


def random_tensor(kind: str, num_rows: int, width: int) -> Tensor:
    """A matrix of any type; of two with one seed, the smaller one is the larger one's beginning.

    Quantised blocks are random bytes with bit 6 cleared: then no float16 in them is infinite.
    Scales of MXFP4 are 2^-64 to 1: no value is subnormal, which some devices take for zero.
    """
    type_ = type_by_name(kind)
    rng = np.random.default_rng(1)
    shape = num_rows, type_.row_bytes(width)
    memory = np.zeros(math.prod(shape) + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    raw = memory[start : start + math.prod(shape)].reshape(shape)
    if type_.is_quantized:
        raw.reshape(-1)[:] = np.frombuffer(rng.bytes(raw.size), np.uint8) & 0xBF
        if kind == "MXFP4":
            exponents = raw.reshape(num_rows, -1, type_.block_bytes)[..., 0]
            exponents[:] = exponents % 64 + 64
    else:
        values = rng.standard_normal((num_rows, width), dtype=np.float32)
        stored = values.view(np.uint16)[:, 1::2] if kind == "BF16" else values.astype(type_.dtype)
        raw[:] = np.ascontiguousarray(stored).view(np.uint8)
    return Tensor("w", (num_rows, width), type_, raw)


def random_experts(kind: str, count: int, num_rows: int, width: int) -> Tensor:
    """As many matrices, one behind the other, as if they were one."""
    whole = random_tensor(kind, count * num_rows, width)
    raw = whole.raw.reshape(count, num_rows, -1)
    return Tensor("w", (count, num_rows, width), whole.type, raw)


def poison(array: Array) -> np.ndarray:
    """What no op leaves in its outputs: NaN, or the bits 01010101."""
    dtype = np.dtype(array.dtype)
    if dtype.kind == "f":
        return np.full(array.shape, np.nan, dtype)
    return np.full((*array.shape, dtype.itemsize), 0x55, np.uint8).view(dtype)[..., 0]


def recorded(
    ops: Ops,
    op: Callable[[], None],
    num_bytes: int,
    *out: Array,
    read: Callable[[], Sequence[Array]] | None = None,
) -> Call:
    """A call that can be repeated, since it writes to ``out`` alone.

    Args:
        read: gives the results in a form that all op sets share; None: ``out`` has it.
    """
    with ops.record() as program:
        op()

    def results() -> list[Array]:
        for array in out:
            ops.assign(array, poison(array))
        program.run()
        return [ops.to_host(array) for array in (out if read is None else read())]

    return Call(op, program.run, results, num_bytes)


def preparing(
    ops: Ops, op: Callable[[Array | None, Any | None], None], num_bytes: int, out: Array
) -> Call:
    """A call that prepares its rows and writes no others.

    Args:
        op: writes rows, prepared ones, or both.
        out: where the rows are written that the prepared ones are checked by.
    """
    weight = ops.weight(random_tensor("Q8_0", 1, out.shape[1]), "int8x2")
    acts, expected = (ops.acts(len(out), out.shape[1], [weight]) for _ in range(2))
    with ops.record() as program:
        op(None, acts)

    def results() -> list[Array]:
        for array in int8_arrays(acts):
            ops.assign(array, poison(array))
        program.run()
        op(out, None)
        ops.quantize(out, out=expected)
        for got, right in zip(int8_arrays(acts), int8_arrays(expected), strict=True):
            if ops.to_host(got).tobytes() != ops.to_host(right).tobytes():
                raise WrongResultError("prepared rows are not what quantize makes of the rows")
        return [ops.to_host(out)]

    return Call(lambda: op(None, acts), program.run, results, num_bytes)


def int8_arrays(acts: Any) -> list[Array]:
    """The arrays of rows prepared for roles int8 and int8x2."""
    forms = (form for form in (acts.first, acts.second) if form is not None)
    return [array for form in forms for array in (form.q, form.d, form.sums)]
