"""Each op over a model's own shapes and types: equal to the reference first, then timed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from specrt.bench.timing import WrongResultError, best_seconds
from specrt.gguf.reader import GGUFFile, Tensor
from specrt.models.loader import Dims
from specrt.ops import PAGE, Array, KVLayer, Ops, Rope, StepInputs
from specrt.reference import ReferenceOps
from specrt.reference.kv import encode

HISTORY = 512
CHECKED = 1024
"""Rows of a matrix that the reference computes too; each output column is one row's."""
TOLERANCE = 1e-5
"""Of the largest value, for ops that are not bitwise the same on every device."""


@dataclass(frozen=True, slots=True)
class Bound:
    """A case on one op set.

    Args:
        call: the op.
        outputs: what it writes.
        consistent: a check that needs no reference.
    """

    call: Callable[[], None]
    outputs: list[Array]
    consistent: Callable[[], bool] = lambda: True


@dataclass(frozen=True, slots=True)
class OpCase:
    """One op at one shape.

    Args:
        op: its name.
        label: type and shape.
        num_rows: T.
        exact: the reference is matched bit for bit.
        num_bytes: what must be read and written.
        bind: makes buffers and weights; matrices only up to so many rows.
    """

    op: str
    label: str
    num_rows: int
    exact: bool
    num_bytes: int
    bind: Callable[[Ops, int], Bound]


@dataclass(frozen=True, slots=True)
class OpRow:
    """A measured case: seconds of one run, and bytes per second."""

    case: OpCase
    seconds: float

    @property
    def bytes_per_second(self) -> float:
        return self.case.num_bytes / self.seconds

    def as_json(self) -> dict:
        """Plain values."""
        case = self.case
        return {
            "op": case.op,
            "case": case.label,
            "rows": case.num_rows,
            "microseconds": 1e6 * self.seconds,
            "bytes_per_second": self.bytes_per_second,
        }


def measure(case: OpCase, ops: Ops) -> OpRow:
    """Check a case against its twin, then time it.

    Raises:
        WrongResultError: it differs.
    """
    program, bound = _recorded(case, ops)
    program()
    check(case, bound)
    return OpRow(case, best_seconds(program))


def check(case: OpCase, bound: Bound) -> None:
    """Compare what an op wrote with what the reference writes.

    Raises:
        WrongResultError: it differs.
    """
    reference = case.bind(ReferenceOps(), CHECKED)
    reference.call()
    same = bound.consistent()
    for got, expected in zip(bound.outputs, reference.outputs, strict=True):
        part = got[..., : expected.shape[-1]]
        if case.exact:
            same &= np.array_equal(part, expected, equal_nan=part.dtype.kind == "f")
        else:
            limit = TOLERANCE * float(np.abs(expected).max())
            same &= bool((np.abs(part - expected) <= limit).all())
    if not same:
        raise WrongResultError(
            f"{case.op} {case.label}, {case.num_rows} rows: differs from the reference; no time "
            "is reported for a wrong result"
        )


def _recorded(case: OpCase, ops: Ops) -> tuple[Callable[[], None], Bound]:
    bound = case.bind(ops, 2**31)
    with ops.record() as program:
        bound.call()
    return program.run, bound


def op_cases(gguf: GGUFFile, num_rows: int) -> Iterator[OpCase]:
    """Every op as this model uses it, over so many rows."""
    dims = Dims.read(gguf)
    seen = set()
    for name, tensor in gguf.tensors.items():
        key = (tensor.type.name, tensor.shape)
        if name.startswith("blk.") and len(tensor.shape) == 2 and key not in seen:
            seen.add(key)
            yield _linear(tensor, num_rows)
    embedding = gguf.require_tensor("token_embd.weight")
    yield _head(gguf.tensors.get("output.weight", embedding), num_rows)
    yield _embed(embedding, num_rows)
    yield _quantize(gguf.require_tensor("blk.0.ffn_gate.weight"), num_rows)
    yield _rms_norm(gguf.require_tensor("blk.0.attn_norm.weight"), dims, num_rows)
    yield _glu(dims, num_rows)
    yield _rope_kv(dims, num_rows)
    yield _attention(dims, num_rows)
    yield _copy(dims, num_rows)


def _label(tensor: Tensor) -> str:
    return f"{tensor.type.name} {' x '.join(str(size) for size in tensor.shape)}"


def _random(ops: Ops, *shape: int, seed: int = 0) -> Array:
    values = ops.buffer(shape, np.float32)
    values[:] = np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)
    return values


def _limited(tensor: Tensor, limit: int) -> Tensor:
    return tensor if tensor.shape[0] <= limit else tensor.rows(0, limit)


def _linear(tensor: Tensor, num_rows: int) -> OpCase:
    height, width = tensor.shape

    def bind(ops: Ops, limit: int) -> Bound:
        weight = ops.weight(_limited(tensor, limit))
        acts, out = ops.acts(num_rows, width, [weight]), _random(ops, num_rows, weight.shape[0])
        ops.quantize(_random(ops, num_rows, width), out=acts)
        return Bound(lambda: ops.linear([(weight, out)], acts), [out])

    num_bytes = tensor.nbytes + num_rows * (width + 4 * height)
    return OpCase("linear", _label(tensor), num_rows, True, num_bytes, bind)


def _head(tensor: Tensor, num_rows: int) -> OpCase:
    height, width = tensor.shape

    def bind(ops: Ops, limit: int) -> Bound:
        weight = ops.weight(_limited(tensor, limit))
        acts, ids = ops.acts(num_rows, width, [weight]), ops.buffer((num_rows,), np.int32)
        logits = _random(ops, num_rows, weight.shape[0])
        ops.quantize(_random(ops, num_rows, width), out=acts)
        return Bound(
            lambda: ops.head(weight, acts, ids=ids, logits=logits, softcap=0.0),
            [logits],
            lambda: np.array_equal(ids, logits.argmax(axis=1)),
        )

    num_bytes = tensor.nbytes + num_rows * (width + 4 * height)
    return OpCase("head", _label(tensor), num_rows, True, num_bytes, bind)


def _embed(tensor: Tensor, num_rows: int) -> OpCase:
    width = tensor.shape[1]

    def bind(ops: Ops, limit: int) -> Bound:
        weight, step = ops.weight(_limited(tensor, limit)), _step(ops, num_rows)
        step.tokens[:num_rows] = np.arange(num_rows)
        out = _random(ops, num_rows, width)
        return Bound(lambda: ops.embed(weight, step, scale=1.0, out=out), [out])

    num_bytes = num_rows * (tensor.nbytes // tensor.shape[0] + 4 * width)
    return OpCase("embed", _label(tensor), num_rows, True, num_bytes, bind)


def _quantize(tensor: Tensor, num_rows: int) -> OpCase:
    width = tensor.shape[1]

    def bind(ops: Ops, limit: int) -> Bound:
        acts = ops.acts(num_rows, width, [ops.weight(_limited(tensor, limit))])
        x, form = _random(ops, num_rows, width), acts.first  # type: ignore[attr-defined]
        outputs = [acts.x] if form is None else [form.q, form.d]  # type: ignore[attr-defined]
        return Bound(lambda: ops.quantize(x, out=acts), outputs)

    return OpCase("quantize", f"{width}", num_rows, True, num_rows * width * 5, bind)


def _rms_norm(tensor: Tensor, dims: Dims, num_rows: int) -> OpCase:
    def bind(ops: Ops, limit: int) -> Bound:
        x, out = _random(ops, num_rows, dims.width), _random(ops, num_rows, dims.width)
        weight = ops.vector(tensor)
        return Bound(lambda: ops.rms_norm(x, weight, dims.eps, out=out), [out])

    return OpCase("rms_norm", f"{dims.width}", num_rows, False, num_rows * dims.width * 8, bind)


def _glu(dims: Dims, num_rows: int) -> OpCase:
    width = dims.ffn_width[0]

    def bind(ops: Ops, limit: int) -> Bound:
        gate, up = (_random(ops, num_rows, width, seed=seed) for seed in (1, 2))
        out = _random(ops, num_rows, width)
        return Bound(lambda: ops.glu(gate, up, activation="silu", out=out), [out])

    return OpCase("glu", f"silu {width}", num_rows, False, num_rows * width * 12, bind)


def _rope_kv(dims: Dims, num_rows: int) -> OpCase:
    heads, kv_heads, dim = dims.heads[0], dims.kv_heads[0], dims.head_dim

    def bind(ops: Ops, limit: int) -> Bound:
        cache, step = _filled_cache(ops, kv_heads, dim), _step(ops, num_rows)
        angles = np.outer(np.arange(HISTORY), 10000.0 ** (-np.arange(0, dim, 2) / dim))
        table = ops.buffer((HISTORY, dim // 2, 2), np.float32)
        table[:] = np.stack([np.cos(angles), np.sin(angles)], axis=-1)
        rope = Rope(table, "neox")
        start = [_random(ops, num_rows, n * dim, seed=n) for n in (heads, kv_heads, kv_heads)]
        q, k, v = (_random(ops, *x.shape) for x in start)

        def call() -> None:
            # The op turns its inputs in place, so each run starts from the same rows.
            for source, rows in zip(start, (q, k, v), strict=True):
                ops.copy(source, out=rows)
            ops.rope_kv(q, k, v, cache, step, rope=rope)

        return Bound(call, [q])

    num_bytes = num_rows * dim * (heads * 16 + kv_heads * 28)
    return OpCase("rope_kv", f"{heads}+{kv_heads} x {dim}", num_rows, False, num_bytes, bind)


def _attention(dims: Dims, num_rows: int) -> OpCase:
    heads, kv_heads, dim = dims.heads[0], dims.kv_heads[0], dims.head_dim

    def bind(ops: Ops, limit: int) -> Bound:
        cache, step = _filled_cache(ops, kv_heads, dim), _step(ops, num_rows)
        q, out = _random(ops, num_rows, heads * dim), _random(ops, num_rows, heads * dim)
        return Bound(
            lambda: ops.attention(q, cache, step, scale=dim**-0.5, window=0, out=out), [out]
        )

    label = f"{heads}/{kv_heads} x {dim}, {HISTORY} keys"
    num_bytes = HISTORY * kv_heads * dim * 4 + num_rows * heads * dim * 8
    return OpCase("attention", label, num_rows, False, num_bytes, bind)


def _copy(dims: Dims, num_rows: int) -> OpCase:
    def bind(ops: Ops, limit: int) -> Bound:
        x, out = _random(ops, num_rows, dims.width), ops.buffer((num_rows, dims.width), np.float32)
        return Bound(lambda: ops.copy(x, out=out), [out])

    return OpCase("copy", f"{dims.width}", num_rows, True, num_rows * dims.width * 8, bind)


def _step(ops: Ops, num_rows: int) -> StepInputs:
    """The last rows of one sequence of ``HISTORY`` positions."""
    step = ops.step_inputs(num_rows, 1, HISTORY // PAGE, 0)
    step.positions[:num_rows] = np.arange(HISTORY - num_rows, HISTORY)
    step.row_seqs[:num_rows] = 0
    step.row_offsets[:] = (0, num_rows)
    step.page_table[0] = np.arange(HISTORY // PAGE)
    return step


def _filled_cache(ops: Ops, kv_heads: int, dim: int) -> KVLayer:
    cache = ops.kv_layer(HISTORY // PAGE, kv_heads, dim, "f16", 0)
    positions = np.arange(HISTORY)
    random = np.random.default_rng(3)
    k, v = (
        encode(random.standard_normal((HISTORY, kv_heads, dim), dtype=np.float32), "f16")
        for _ in "kv"
    )
    ops.kv_write(cache, positions // PAGE, positions, k, v)
    return cache
