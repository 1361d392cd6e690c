"""From an op's case to its call on an op set; equal seeds give both op sets equal inputs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from specrt.bench import cases
from specrt.bench.cases import (
    AcceptCase,
    AttentionCase,
    EmbedCase,
    GluCase,
    LinearCase,
    NormCase,
    QuantizeCase,
    RopeCase,
    RowsCase,
)
from specrt.bench.timing import WrongResultError
from specrt.gguf.reader import Tensor
from specrt.gguf.types import type_by_name
from specrt.ops import PAGE, Array, Ops, Rope
from specrt.reference.kv import encode

ALIGNMENT = 64
"""Bytes, of a matrix: at least what a file gives it."""

TWIN_OUTPUTS: Final = 40
"""A matrix's outputs do not know of each other: the twin computes this many of them."""


@dataclass(frozen=True, slots=True)
class Call:
    """An op over its buffers.

    Args:
        run: one call.
        results: runs it once, and gives what it wrote.
        num_bytes: of weights or of cached keys and values that a call reads; where an op has
            neither, of the rows in and out.
    """

    run: Callable[[], None]
    results: Callable[[], list[Array]]
    num_bytes: int


@dataclass(frozen=True, slots=True)
class OpBench:
    """An op with its cases.

    Args:
        cases: one kind of case.
        bind: makes the call of a case on an op set.
        twin: the case that the reference runs: fewer outputs of the same ones, rows as they are.
        exact: host and reference agree by bits.
    """

    cases: tuple[Any, ...]
    bind: Callable[[Ops, Any], Call]
    exact: bool = True
    twin: Callable[[Any], Any] = lambda case: case


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


def poison(array: Array) -> np.ndarray:
    """What no op leaves in its outputs: NaN, or the bits 01010101."""
    dtype = np.dtype(array.dtype)
    if dtype.kind == "f":
        return np.full(array.shape, np.nan, dtype)
    return np.full((*array.shape, dtype.itemsize), 0x55, np.uint8).view(dtype)[..., 0]


def recorded(ops: Ops, op: Callable[[], None], num_bytes: int, *out: Array) -> Call:
    """A call that can be repeated, since it writes to ``out`` alone."""
    with ops.record() as program:
        op()

    def results() -> list[Array]:
        for array in out:
            ops.assign(array, poison(array))
        program.run()
        return [ops.to_host(array) for array in out]

    return Call(program.run, results, num_bytes)


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
        for array in _int8_arrays(acts):
            ops.assign(array, poison(array))
        program.run()
        op(out, None)
        ops.quantize(out, out=expected)
        for got, right in zip(_int8_arrays(acts), _int8_arrays(expected), strict=True):
            if ops.to_host(got).tobytes() != ops.to_host(right).tobytes():
                raise WrongResultError("prepared rows are not what quantize makes of the rows")
        return [ops.to_host(out)]

    return Call(program.run, results, num_bytes)


def _int8_arrays(acts: Any) -> list[Array]:
    forms = (form for form in (acts.first, acts.second) if form is not None)
    return [array for form in forms for array in (form.q, form.d, form.sums)]


def bind_linear(ops: Ops, case: LinearCase) -> Call:
    """The product alone; the rows are prepared before."""
    tensor = random_tensor(case.type, case.outputs, case.width)
    weight = ops.weight(tensor, case.role)
    acts = ops.acts(case.rows, case.width, [weight])
    ops.quantize(random_rows(ops, case.rows, case.width), out=acts)
    out = ops.buffer((case.rows, case.outputs), np.float32)
    return recorded(ops, lambda: ops.linear([(weight, out)], acts), tensor.nbytes, out)


def bind_head(ops: Ops, case: LinearCase) -> Call:
    """The ids alone, as greedy decoding takes them; the logits are checked beside them."""
    tensor = random_tensor(case.type, case.outputs, case.width)
    weight = ops.weight(tensor, case.role)
    acts = ops.acts(case.rows, case.width, [weight])
    ops.quantize(random_rows(ops, case.rows, case.width), out=acts)
    ids = ops.buffer((case.rows,), np.int32)
    logits = ops.buffer((case.rows, case.outputs), np.float32)
    with ops.record() as program:
        ops.head(weight, acts, ids=ids, logits=None, softcap=0.0)

    def results() -> list[Array]:
        for array in (ids, logits):
            ops.assign(array, poison(array))
        program.run()
        drawn = ops.to_host(ids)
        ops.head(weight, acts, ids=ids, logits=logits, softcap=0.0)
        values = ops.to_host(logits)
        if (drawn != ops.to_host(ids)).any() or (drawn != values.argmax(axis=1)).any():
            raise WrongResultError(f"head {case}: its ids are not the largest logits'")
        return [values]

    return Call(program.run, results, tensor.nbytes)


def bind_embed(ops: Ops, case: EmbedCase) -> Call:
    """Rows from all over the matrix."""
    tensor = random_tensor(case.type, case.vocab, case.width)
    weight = ops.weight(tensor)
    step = ops.step_inputs(case.rows, 1, 1, 0)
    step.tokens[: case.rows] = np.random.default_rng(2).integers(0, case.vocab, case.rows)
    step.publish()
    out = ops.buffer((case.rows, case.width), np.float32)
    num_bytes = case.rows * tensor.raw.shape[1]
    return recorded(ops, lambda: ops.embed(weight, step, scale=1.5, out=out), num_bytes, out)


def bind_rms_norm(ops: Ops, case: NormCase) -> Call:
    """With a weight."""
    x, weight = random_rows(ops, case.rows, case.width), random_rows(ops, 1, case.width, 3)[0]
    add = random_rows(ops, case.rows, case.width, 10) if case.add else None
    out = ops.buffer(x.shape, np.float32)
    num_bytes = (3 if case.add else 2) * x.nbytes

    def op(out: Array | None, acts: Any | None) -> None:
        ops.rms_norm(x, weight, 1e-5, out=out, add=add, acts=acts)

    if case.prepares:
        return preparing(ops, op, num_bytes, out)
    return recorded(ops, lambda: op(out, None), num_bytes, out)


def bind_quantize(ops: Ops, case: QuantizeCase) -> Call:
    """To int8 blocks, and what they leave over."""
    x = random_rows(ops, case.rows, case.width)
    weight = ops.weight(random_tensor("Q8_0", 1, case.width), case.role)
    acts: Any = ops.acts(case.rows, case.width, [weight])
    out = _int8_arrays(acts)
    num_bytes = x.nbytes + sum(array.nbytes for array in out)
    return recorded(ops, lambda: ops.quantize(x, out=acts), num_bytes, *out)


def bind_copy(ops: Ops, case: RowsCase) -> Call:
    """To rows as far apart."""
    x = random_rows(ops, case.rows, case.width)
    out = ops.buffer(x.shape, np.float32)
    return recorded(ops, lambda: ops.copy(x, out=out), 2 * x.nbytes, out)


def bind_glu(ops: Ops, case: GluCase) -> Call:
    """Gate and up."""
    gate, up = (random_rows(ops, case.rows, case.width, seed) for seed in (4, 5))
    out = ops.buffer(gate.shape, np.float32)

    def op(out: Array | None, acts: Any | None) -> None:
        ops.glu(gate, up, activation=case.activation, out=out, acts=acts)

    if case.prepares:
        return preparing(ops, op, 3 * out.nbytes, out)
    return recorded(ops, lambda: op(out, None), 3 * out.nbytes, out)


def bind_select(ops: Ops, case: RowsCase) -> Call:
    """As many rows as there are, in another order."""
    x = random_rows(ops, case.rows, case.width)
    out = ops.buffer(x.shape, np.float32)
    index = ops.buffer((case.rows,), np.int32)
    ops.assign(index, np.random.default_rng(9).permutation(case.rows).astype(np.int32))
    return recorded(ops, lambda: ops.select(x, index, out=out), 2 * x.nbytes, out)


def bind_accept(ops: Ops, case: AcceptCase) -> Call:
    """The last draft token of each window is wrong."""
    num_rows = case.windows * case.rows
    step = ops.step_inputs(num_rows, case.windows, 1, 0)
    step.tokens[:] = np.random.default_rng(9).integers(0, 49_152, num_rows)
    step.positions[:] = np.arange(num_rows)
    step.row_offsets[:] = np.arange(case.windows + 1) * case.rows
    step.publish()
    drawn = np.roll(step.tokens, -1)
    drawn[case.rows - 2 :: case.rows] += 1
    ids = ops.buffer((num_rows,), np.int32)
    ops.assign(ids, drawn)
    out = ops.buffer((case.windows, 3), np.int32)
    return recorded(ops, lambda: ops.accept(ids, step, out=out), 2 * ids.nbytes + out.nbytes, out)


def bind_attention(ops: Ops, case: AttentionCase) -> Call:
    """The last rows of a sequence over all of it."""
    cache, step = _sequence(ops, case)
    positions = np.arange(case.length)
    shape = (case.length, case.kv_heads, case.head_dim)
    values = np.random.default_rng(6).standard_normal((2, *shape), dtype=np.float32)
    k, v = (encode(x, case.kv_type) for x in values)
    ops.kv_write(cache, step.page_table[0, positions // PAGE], positions, k, v)
    q = random_rows(ops, case.rows, case.heads * case.head_dim)
    out = ops.buffer(q.shape, np.float32)
    scale, softcap = case.head_dim**-0.5, case.softcap
    return recorded(
        ops,
        lambda: ops.attention(
            q, cache, step, scale=scale, window=case.window, out=out, softcap=softcap
        ),
        k.nbytes + v.nbytes,
        out,
    )


def bind_rope_kv(ops: Ops, case: RopeCase) -> Call:
    """Rotate q and k of the last rows, and store k and v; q is turned in place."""
    cache, step = _sequence(ops, case)
    angles = np.outer(np.arange(case.length), 10000.0 ** -np.linspace(0, 1, case.head_dim // 2))
    table = ops.buffer((*angles.shape, 2), np.float32)
    ops.assign(table, np.stack([np.cos(angles), np.sin(angles)], axis=-1).astype(np.float32))
    q = random_rows(ops, case.rows, case.heads * case.head_dim)
    k, v = (random_rows(ops, case.rows, case.kv_heads * case.head_dim, seed) for seed in (7, 8))
    given = ops.to_host(q), ops.to_host(k)
    norms: dict[str, Any] = {}
    if case.normed:
        q_norm, k_norm = (random_rows(ops, 1, case.head_dim, seed)[0] for seed in (11, 12))
        norms = {"q_norm": q_norm, "k_norm": k_norm, "eps": 1e-5}
    with ops.record() as program:
        ops.rope_kv(q, k, v, cache, step, rope=Rope(table, "neox"), **norms)

    def results() -> list[Array]:
        for array, values in zip((q, k), given, strict=True):
            ops.assign(array, values)
        program.run()
        positions = np.arange(case.length - case.rows, case.length)
        return [
            ops.to_host(q),
            *ops.kv_read(cache, step.page_table[0, positions // PAGE], positions),
        ]

    return Call(program.run, results, 2 * q.nbytes + 2 * k.nbytes + v.nbytes)


def _sequence(ops: Ops, case: AttentionCase | RopeCase) -> tuple[Any, Any]:
    """One sequence's empty cache, and a step of its last rows."""
    pages = -(-case.length // PAGE)
    step = ops.step_inputs(case.rows, 1, pages, 0)
    step.positions[: case.rows] = np.arange(case.length - case.rows, case.length)
    step.row_offsets[:2] = 0, case.rows
    step.page_table[0, :pages] = np.arange(pages)
    step.publish()
    return ops.kv_layer(pages, case.kv_heads, case.head_dim, case.kv_type, 0), step


def _written(case: Any) -> Any:
    return replace(case, prepares=False)


def _fewer_outputs(case: LinearCase) -> LinearCase:
    return LinearCase(case.type, TWIN_OUTPUTS, case.width, case.rows, case.role)


OPS: Final = MappingProxyType(
    {
        "accept": OpBench(cases.ACCEPT, bind_accept),
        "attention": OpBench(cases.ATTENTION, bind_attention, exact=False),
        "copy": OpBench(cases.COPY, bind_copy),
        "embed": OpBench(cases.EMBED, bind_embed),
        "glu": OpBench(cases.GLU, bind_glu, exact=False, twin=_written),
        "head": OpBench(cases.HEAD, bind_head, twin=_fewer_outputs),
        "linear": OpBench(cases.LINEAR, bind_linear, twin=_fewer_outputs),
        "quantize": OpBench(cases.QUANTIZE, bind_quantize),
        "rms_norm": OpBench(cases.RMS_NORM, bind_rms_norm, exact=False, twin=_written),
        "rope_kv": OpBench(cases.ROPE_KV, bind_rope_kv),
        "select": OpBench(cases.SELECT, bind_select),
    }
)
"""By the op's name."""
