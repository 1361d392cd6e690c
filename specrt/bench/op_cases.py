"""From an op's case to its call on an op set; equal seeds give both op sets equal inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
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
    MoeCase,
    MtpCase,
    NormCase,
    QuantizeCase,
    RopeCase,
    RouteCase,
    RowsCase,
    TopKCase,
)
from specrt.bench.draft_calls import (
    bind_block_conv,
    bind_draft_token,
    bind_load_rows,
    bind_mtp_project,
    bind_scale,
    bind_store_rows,
)
from specrt.bench.lattice_calls import bind_lattice, bind_markov
from specrt.bench.op_calls import (
    Call,
    int8_arrays,
    poison,
    preparing,
    random_experts,
    random_rows,
    random_tensor,
    recorded,
)
from specrt.bench.recurrent_calls import bind_causal_conv, bind_gated_delta
from specrt.bench.timing import WrongResultError
from specrt.experts import Experts, Routed
from specrt.ops import PAGE, Array, Ops, Rope
from specrt.reference.kv import encode

FLOAT_ERROR: Final = 1e-5
"""Where an op set and the reference differ by rounding: of the largest value."""

TWIN_OUTPUTS: Final = 40
"""A matrix's outputs do not know of each other: the twin computes this many of them."""


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


def prepared_rows(ops: Ops, case: LinearCase, *weights: Any) -> Any:
    """The rows of a case, as weights read them."""
    acts = ops.acts(case.rows, case.width, weights)
    ops.quantize(random_rows(ops, case.rows, case.width), out=acts)
    return acts


def bind_linear(ops: Ops, case: LinearCase) -> Call:
    """The product alone; the rows are prepared before."""
    tensors = [
        random_tensor(kind, case.outputs + 5 * number, case.width)
        for number, kind in enumerate((case.type, *case.others))
    ]
    weights = [
        ops.weight(
            tensor,
            case.role,
            random_rows(ops, 1, tensor.shape[0], 13)[0] if case.bias else None,
        )
        for tensor in tensors
    ]
    acts, num_bytes = prepared_rows(ops, case, *weights), sum(one.nbytes for one in tensors)
    return linear_call(ops, case, weights[0], acts, num_bytes, *weights[1:])


def linear_call(
    ops: Ops, case: LinearCase, weight: Any, acts: Any, num_bytes: int, *others: Any
) -> Call:
    """The product of weights that take so many bytes in all and prepared rows."""
    weights = (weight, *others)
    outs = [ops.buffer((case.rows, one.shape[0]), np.float32) for one in weights]
    add = random_rows(ops, case.rows, case.outputs, 14) if case.add else None
    pairs = list(zip(weights, outs, strict=True))
    return recorded(ops, lambda: ops.linear(pairs, acts, add=add), num_bytes, *outs)


def bind_head(ops: Ops, case: LinearCase) -> Call:
    """The ids alone, as greedy decoding takes them; the logits are checked beside them."""
    tensor = random_tensor(case.type, case.outputs, case.width)
    weight = ops.weight(tensor, case.role)
    return head_call(ops, case, weight, prepared_rows(ops, case, weight), tensor.nbytes)


def head_call(ops: Ops, case: LinearCase, weight: Any, acts: Any, num_bytes: int) -> Call:
    """The ids of a weight that takes so many bytes and prepared rows."""
    ids = ops.buffer((case.rows,), np.int32)
    logits = ops.buffer((case.rows, case.outputs), np.float32)

    def op() -> None:
        ops.head(weight, acts, ids=ids, logits=None, softcap=case.softcap, scale=case.scale)

    with ops.record() as program:
        op()

    def results() -> list[Array]:
        for array in (ids, logits):
            ops.assign(array, poison(array))
        program.run()
        drawn = ops.to_host(ids)
        ops.head(weight, acts, ids=ids, logits=logits, softcap=case.softcap, scale=case.scale)
        values = ops.to_host(logits)
        if (drawn != ops.to_host(ids)).any() or (drawn != values.argmax(axis=1)).any():
            raise WrongResultError(f"head {case}: its ids are not the largest logits'")
        return [values]

    return Call(op, program.run, results, num_bytes)


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
    out = int8_arrays(acts)
    num_bytes = x.nbytes + sum(array.nbytes for array in out)
    return recorded(
        ops,
        lambda: ops.quantize(x, out=acts),
        num_bytes,
        *out,
        read=lambda: int8_arrays(acts.plain()),
    )


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


def bind_route(ops: Ops, case: RouteCase) -> Call:
    """Ids and weights."""
    logits = random_rows(ops, case.rows, case.width, 4)
    shape = (case.rows, case.num_used)
    out = Routed(ops.buffer(shape, np.int32), ops.buffer(shape, np.float32))
    num_bytes = logits.nbytes + out.ids.nbytes + out.weights.nbytes
    op = partial(ops.route, logits, out=out)
    return recorded(ops, op, num_bytes, out.ids, out.weights)


def bind_moe(ops: Ops, case: MoeCase) -> Call:
    """The mixture alone; the rows are prepared and routed before."""
    shapes = [(case.hidden, case.width)] * 2 + [(case.width, case.hidden)]
    tensors = [random_experts(case.type, case.num_experts, *shape) for shape in shapes]
    gate, up, down = (ops.expert_weight(tensor, case.role) for tensor in tensors)
    experts = Experts(gate, up, down, case.num_used)
    routed = ops.routed(case.rows, [experts])
    rng = np.random.default_rng(9)
    ids = rng.random((case.rows, case.num_experts)).argsort(axis=1)[:, : case.num_used]
    ops.assign(routed.ids, ids.astype(np.int32))
    ops.assign(routed.weights, rng.random(ids.shape, dtype=np.float32))
    acts = ops.acts(case.rows, case.width, [gate])
    ops.quantize(random_rows(ops, case.rows, case.width), out=acts)
    out = ops.buffer((case.rows, case.width), np.float32)
    more: dict[str, Array] = {}
    if case.mixed:
        shared, add = (random_rows(ops, case.rows, case.width, seed) for seed in (5, 6))
        more = {"shared": shared, "shared_gate": random_rows(ops, case.rows, 1, 7), "add": add}
    op = partial(ops.moe, acts, experts, routed, activation="silu", out=out, **more)
    num_read = sum(tensor.nbytes for tensor in tensors) * len(np.unique(ids))
    return recorded(ops, op, num_read // case.num_experts, out)


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


def bind_top_k(ops: Ops, case: TopKCase) -> Call:
    """Of random logits."""
    logits = random_rows(ops, case.rows, case.width)
    ids = ops.buffer((case.rows, case.k), np.int32)
    values = ops.buffer((case.rows, case.k), np.float32)
    return recorded(
        ops, lambda: ops.top_k(logits, ids=ids, values=values), logits.nbytes, ids, values
    )


def bind_attention(ops: Ops, case: AttentionCase) -> Call:
    """The last rows of a sequence over all of it."""
    return attention_call(ops, case, filled_cache(ops, case))


def filled_cache(ops: Ops, case: AttentionCase) -> Any:
    """Random keys and values of a whole sequence, or of its end that a ring holds."""
    cache = _empty_cache(ops, case)
    num_lost = max(0, case.length - case.ring_pages * PAGE) if case.ring_pages else 0
    positions = np.arange(num_lost, case.length)
    shape = (len(positions), case.kv_heads, case.head_dim)
    values = np.random.default_rng(6).standard_normal((2, *shape), dtype=np.float32)
    k, v = (encode(x, case.kv_type) for x in values)
    ops.kv_write(cache, _pages(case, positions), positions, k, v)
    return cache


def attention_call(ops: Ops, case: AttentionCase, cache: Any) -> Call:
    """The last rows of the sequence in a cache over all of it."""
    step, q = _last_rows(ops, case), random_rows(ops, case.rows, case.heads * case.head_dim)
    sinks = None
    if case.block:
        sinks = random_rows(ops, 1, case.heads)[0]
        step.lowest[0] = case.length // 5
        step.publish()
    out = ops.buffer(q.shape, np.float32)
    scale, softcap = case.head_dim**-0.5, case.softcap
    row_bytes = encode(np.zeros((1, 1, case.head_dim), np.float32), case.kv_type).nbytes
    return recorded(
        ops,
        lambda: ops.attention(
            q,
            cache,
            step,
            scale=scale,
            window=case.window,
            out=out,
            softcap=softcap,
            ahead=case.block,
            sinks=sinks,
        ),
        2 * case.length * case.kv_heads * row_bytes,
        out,
    )


def bind_rope_kv(ops: Ops, case: RopeCase) -> Call:
    """Rotate q and k of the last rows, and store k and v; q is turned in place."""
    cache, step = _empty_cache(ops, case), _last_rows(ops, case)
    num_pairs = case.head_dim // 2 if case.turns else 0
    angles = np.outer(np.arange(case.length), 10000.0 ** -np.linspace(0, 1, num_pairs))
    table = ops.buffer((*angles.shape, 2), np.float32)
    ops.assign(table, np.stack([np.cos(angles), np.sin(angles)], axis=-1).astype(np.float32))
    q = random_rows(ops, case.rows, case.heads * case.head_dim)
    k, v = (random_rows(ops, case.rows, case.kv_heads * case.head_dim, seed) for seed in (7, 8))
    given = ops.to_host(q), ops.to_host(k)
    norms: dict[str, Any] = {}
    if case.normed:
        q_norm, k_norm = (random_rows(ops, 1, case.head_dim, seed)[0] for seed in (11, 12))
        norms = {"q_norm": q_norm, "k_norm": k_norm, "eps": 1e-5}

    def op() -> None:
        ops.rope_kv(q, k, v, cache, step, rope=Rope(table, case.pairing), **norms)

    with ops.record() as program:
        op()

    def results() -> list[Array]:
        for array, values in zip((q, k), given, strict=True):
            ops.assign(array, values)
        program.run()
        positions = np.arange(case.length - case.rows, case.length)
        return [
            ops.to_host(q),
            *ops.kv_read(cache, _pages(case, positions), positions),
        ]

    return Call(op, program.run, results, 2 * q.nbytes + 2 * k.nbytes + v.nbytes)


def _empty_cache(ops: Ops, case: AttentionCase | RopeCase) -> Any:
    """Of one sequence."""
    pages = case.ring_pages or -(-case.length // PAGE)
    return ops.kv_layer(pages, case.kv_heads, case.head_dim, case.kv_type, case.ring_pages)


def _pages(case: AttentionCase | RopeCase, positions: np.ndarray) -> np.ndarray:
    """The page of each position."""
    chunks = positions // PAGE
    return chunks % case.ring_pages if case.ring_pages else chunks


def _last_rows(ops: Ops, case: AttentionCase | RopeCase) -> Any:
    """A step of a sequence's last rows; its pages are in order."""
    pages = -(-case.length // PAGE)
    step = ops.step_inputs(case.rows, 1, pages, case.ring_pages)
    step.positions[: case.rows] = np.arange(case.length - case.rows, case.length)
    step.row_offsets[:2] = 0, case.rows
    step.page_table[0, :pages] = np.arange(pages)
    step.ring_table[0, : case.ring_pages] = np.arange(case.ring_pages)
    step.publish()
    return step


def _written(case: Any) -> Any:
    return replace(case, prepares=False)


def _fewer_outputs(case: LinearCase | MtpCase) -> LinearCase | MtpCase:
    return replace(case, outputs=min(case.outputs, TWIN_OUTPUTS))


OPS: Final = MappingProxyType(
    {
        "accept": OpBench(cases.ACCEPT, bind_accept),
        "attention": OpBench(cases.ATTENTION, bind_attention, exact=False),
        "block_conv": OpBench(cases.BLOCK_CONV, bind_block_conv, twin=_written),
        "causal_conv": OpBench(cases.CAUSAL_CONV, bind_causal_conv, exact=False),
        "copy": OpBench(cases.COPY, bind_copy),
        "draft_token": OpBench(cases.DRAFT_TOKEN, bind_draft_token, exact=False),
        "embed": OpBench(cases.EMBED, bind_embed),
        "gated_delta": OpBench(cases.GATED_DELTA, bind_gated_delta, exact=False),
        "glu": OpBench(cases.GLU, bind_glu, exact=False, twin=_written),
        "head": OpBench(cases.HEAD, bind_head, twin=_fewer_outputs),
        "lattice": OpBench(cases.LATTICE, bind_lattice, exact=False),
        "linear": OpBench(cases.LINEAR, bind_linear, twin=_fewer_outputs),
        "load_rows": OpBench(cases.LOAD_ROWS, bind_load_rows),
        "markov": OpBench(cases.MARKOV, bind_markov, exact=False),
        "moe": OpBench(cases.MOE, bind_moe, exact=False),
        "mtp_project": OpBench(
            cases.MTP_PROJECT, bind_mtp_project, exact=False, twin=_fewer_outputs
        ),
        "quantize": OpBench(cases.QUANTIZE, bind_quantize),
        "rms_norm": OpBench(cases.RMS_NORM, bind_rms_norm, exact=False, twin=_written),
        "rope_kv": OpBench(cases.ROPE_KV, bind_rope_kv),
        "route": OpBench(cases.ROUTE, bind_route, exact=False),
        "scale": OpBench(cases.SCALE, bind_scale),
        "select": OpBench(cases.SELECT, bind_select),
        "store_rows": OpBench(cases.STORE_ROWS, bind_store_rows),
        "top_k": OpBench(cases.TOP_K, bind_top_k),
    }
)
"""By the op's name."""


def check_results(op: str, case: Any, got: list[Array], expected: list[Array]) -> None:
    """Raise ``WrongResultError`` unless results are those of the reference's twin."""
    for mine, twin in zip(got, expected, strict=True):
        mine = mine[..., : twin.shape[-1]]
        if OPS[op].exact:
            same = np.array_equal(np.ascontiguousarray(mine).view(np.uint8), twin.view(np.uint8))
        else:
            same = bool((np.abs(mine - twin) <= FLOAT_ERROR * np.abs(twin).max()).all())
        if not same:
            raise WrongResultError(f"{op} {case}: it differs from the reference")
