"""What the launchers of every op set check before a kernel may touch an array."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from specrt.errors import MismatchError, UnsupportedError
from specrt.ops import PAGE, Rope, RopePairing
from specrt.state.draw import DRAW_INTS, EDIT_INTS
from specrt.state.recurrent import MAX_CONV

if TYPE_CHECKING:
    from specrt.experts import Experts, Routed
    from specrt.state.step import StepInputs

SOFTCAPS = (1e-30, 1e30)
"""Between these a float32 has all its bits."""


def check(name: str, array: Any, dtype: type, shape: tuple[int, ...]) -> None:
    """Raise ``MismatchError`` unless the array is C-contiguous with this dtype and shape."""
    if array.dtype != dtype or array.shape != shape or not array.flags.c_contiguous:
        kind = "" if array.flags.c_contiguous else "strided "
        raise MismatchError(
            f"{name} is a {kind}{array.dtype} array of shape {array.shape}; "
            f"expected contiguous {np.dtype(dtype)} {shape}"
        )


def check_matrix(tensor: Any, bias: Any | None) -> None:
    """Raise ``MismatchError`` unless a GGUF matrix [N, K] has whole blocks, and bias is [N] f32."""
    num_rows, width = tensor.shape
    block_size, block_bytes = tensor.type.block_size, tensor.type.block_bytes
    if width % block_size:
        raise MismatchError(
            f"{tensor.name} has {width} columns, not a multiple of {block_size} "
            f"({tensor.type.name})"
        )
    raw = np.ascontiguousarray(tensor.raw)
    check(tensor.name, raw, np.uint8, (num_rows, width // block_size * block_bytes))
    if bias is not None:
        check(f"the bias of {tensor.name}", bias, np.float32, (num_rows,))


def check_linear(pairs: Sequence[tuple[Any, Any]], acts: Any, add: Any | None, most: int) -> int:
    """T, the rows of each out; ``MismatchError`` unless weights, outs, acts and add fit."""
    if not 0 < len(pairs) <= most:
        raise MismatchError(f"linear: {len(pairs)} pairs; expected 1 to {most}")
    num_rows = len(pairs[0][1])
    for weight, out in pairs:
        check("linear: out", out, np.float32, (num_rows, weight.shape[0]))
        acts.check_readable(weight, num_rows)
    if add is not None:
        if len(pairs) != 1:
            raise MismatchError(f"linear: add goes to one out; there are {len(pairs)} pairs")
        check("linear: add", add, np.float32, pairs[0][1].shape)
    return num_rows


def check_head(weight: Any, acts: Any, ids: Any, logits: Any | None, scale: float) -> int:
    """T; ``MismatchError`` unless ids are [T] int32, logits [T, V] f32, and acts and scale fit."""
    num_rows = len(ids)
    check("head: ids", ids, np.int32, (num_rows,))
    acts.check_readable(weight, num_rows)
    if logits is not None:
        check("head: logits", logits, np.float32, (num_rows, weight.shape[0]))
    if not abs(scale) <= float(np.finfo(np.float32).max):
        raise MismatchError(f"head: scale {scale}; expected a finite float32")
    return num_rows


def check_accept(ids: Any, step: StepInputs, out: Any) -> None:
    """Raise ``MismatchError`` unless ids are [T] int32 and out is [B, 3] int32 for the step."""
    check("accept: ids", ids, np.int32, (len(ids),))
    check("accept: out", out, np.int32, (len(step.row_offsets) - 1, 3))
    _check_num_rows("accept", len(ids), step)


def check_copy(x: Any, out: Any) -> None:
    """Raise ``MismatchError`` unless both are [T, N] of one dtype with adjacent columns."""
    _check_rows("copy: x", x)
    _check_rows("copy: out", out)
    if x.dtype != out.dtype or x.shape != out.shape:
        raise MismatchError(
            f"copy: out is {out.dtype} {out.shape}; expected {x.dtype} {x.shape} as x"
        )


def check_select(x: Any, index: Any, out: Any) -> None:
    """Raise ``MismatchError`` unless x, out are [T, N], [n, N] of one dtype, index is [n] int32."""
    _check_rows("select: x", x)
    _check_rows("select: out", out)
    check("select: index", index, np.int32, (len(out),))
    if x.dtype != out.dtype or x.shape[1] != out.shape[1]:
        raise MismatchError(
            f"select: out is {out.dtype} {out.shape}; expected rows as x has, {x.dtype} {x.shape}"
        )


def check_store_rows(x: Any, step: StepInputs, out: Any) -> None:
    """Raise ``MismatchError`` unless x is [T, D], out [slots, R, D] f32, of the step's rows."""
    check("store_rows: x", x, np.float32, (len(x), x.shape[-1]))
    _check_ring("store_rows: out", out, x.shape[1])
    _check_num_rows("store_rows", len(x), step)


def check_load_rows(rings: Sequence[Any], step: StepInputs, acts: Any, most: int) -> None:
    """Raise ``MismatchError`` unless rings are [slots, R, D] f32, and acts as wide as they are."""
    if not 0 < len(rings) <= most:
        raise MismatchError(f"load_rows: {len(rings)} rings; expected 1 to {most}")
    for ring in rings:
        _check_ring("load_rows: a ring", ring, ring.shape[-1])
    width = sum(ring.shape[2] for ring in rings)
    check_results("load_rows", None, acts, (acts.num_rows, width))
    _check_num_rows("load_rows", acts.num_rows, step)


def check_block_conv(
    x: Any,
    dynamic: Any,
    base: Any,
    step: StepInputs,
    side: int,
    out: Any | None,
    add: Any | None,
    acts: Any | None,
) -> None:
    """Raise ``MismatchError`` unless x, out, add are [T, D] f32, and taps, acts and step fit."""
    num_rows, width = len(x), x.shape[-1]
    check("block_conv: x", x, np.float32, (num_rows, width))
    check("block_conv: base", base, np.float32, (2, *base.shape[1:2], width))
    taps, size = base.shape[1], dynamic.shape[-1]
    check("block_conv: dynamic", dynamic, np.float32, (num_rows, size))
    if not taps or not size or size % (2 * taps) or width % (size // (2 * taps)):
        raise MismatchError(
            f"block_conv: rows of {size} for {taps} taps of {width} channels; expected 2 * {taps} "
            f"times a number of groups that divides {width}"
        )
    if side not in (0, 1) or out is x:
        raise MismatchError(
            f"block_conv: side {side}{', in place' * (out is x)}; expected 0 or 1, and out that is "
            "not x, of which later rows read"
        )
    check_results("block_conv", out, acts, x.shape)
    if add is not None:
        check("block_conv: add", add, np.float32, x.shape)
    _check_num_rows("block_conv", num_rows, step)


def check_scale(x: Any, out: Any, add: Any | None) -> None:
    """Raise ``MismatchError`` unless x, out and add are [T, D] f32."""
    check("scale: x", x, np.float32, (len(x), x.shape[-1]))
    for name, array in (("out", out), ("add", add)):
        if array is not None:
            check(f"scale: {name}", array, np.float32, x.shape)


def check_mtp_project(
    embedding: Any,
    hidden: Any,
    step: StepInputs,
    embedding_norm: Any,
    hidden_norm: Any,
    acts: Any,
    out: Any,
) -> None:
    """Raise ``MismatchError`` unless all fit the embedding's width, and the step has the rows."""
    width = embedding.shape[1]
    check("mtp_project: out", out, np.float32, (len(out), out.shape[-1]))
    _check_ring("mtp_project: hidden", hidden, width)
    for name, norm in (("embedding_norm", embedding_norm), ("hidden_norm", hidden_norm)):
        check(f"mtp_project: {name}", norm, np.float32, (width,))
    check_acts("mtp_project", acts, (len(out), 2 * width))
    _check_num_rows("mtp_project", len(out), step)


def check_draft_token(
    ids: Any,
    logits: Any,
    step: StepInputs,
    names: Any | None,
    gates: Any,
    tokens: Any,
    shares: Any,
    stop: Any,
) -> None:
    """Raise ``MismatchError`` unless ids and logits are [B, k], the rest fits B and the step."""
    num_seqs = len(ids)
    check("draft_token: ids", ids, np.int32, (num_seqs, ids.shape[-1]))
    check("draft_token: logits", logits, np.float32, ids.shape)
    check("draft_token: gates", gates, np.float32, (num_seqs,))
    check("draft_token: tokens", tokens, np.int32, (max(len(tokens), num_seqs), tokens.shape[-1]))
    check("draft_token: shares", shares, np.float32, tokens.shape)
    check("draft_token: stop", stop, np.int32, (1,))
    if names is not None:
        check("draft_token: names", names, np.int32, (len(names),))
    if not ids.shape[1] or not tokens.shape[1]:
        raise MismatchError(
            f"draft_token: ids {ids.shape} and tokens {tokens.shape}; expected some"
        )
    _check_num_rows("draft_token", num_seqs, step)


def check_lattice(
    ids: Any,
    logits: Any,
    gates: Any,
    step: StepInputs,
    predecessor: Any,
    successor: Any,
    names: Any | None,
    scores: Any,
) -> None:
    """Raise ``MismatchError`` unless B blocks' rows [B n, k] and gates [B n, R] fit all else."""
    num_rows, k = _check_blocks("lattice", len(ids), len(scores), step), ids.shape[-1]
    check("lattice: ids", ids, np.int32, (len(ids), k))
    check("lattice: logits", logits, np.float32, ids.shape)
    check("lattice: gates", gates, np.float32, (len(ids), predecessor.shape[1]))
    check("lattice: scores", scores, np.float32, (len(scores), k + k * k * (num_rows - 1)))
    if names is not None:
        check("lattice: names", names, np.int32, (len(names),))
    if not k or predecessor.shape[1] != successor.shape[1]:
        raise MismatchError(
            f"lattice: {k} candidates, codebooks {predecessor.shape} and {successor.shape}; "
            "expected some, and equal widths"
        )


def check_markov(
    logits: Any,
    hidden: Any,
    step: StepInputs,
    predecessor: Any,
    successor: Any,
    confidence: Any | None,
    names: Any | None,
    acts: Any,
    ids: Any,
    confidences: Any | None,
) -> None:
    """Raise ``MismatchError`` unless B blocks' logits [B n, Vd] and ids [B, n] fit all else."""
    num_rows, width = _check_blocks("markov", len(logits), len(ids), step), hidden.shape[-1]
    check("markov: logits", logits, np.float32, (len(logits), successor.shape[0]))
    check("markov: hidden", hidden, np.float32, (len(logits), width))
    check("markov: ids", ids, np.int32, (len(ids), num_rows))
    if names is not None:
        check("markov: names", names, np.int32, (successor.shape[0],))
    if confidence is not None:
        size = width + predecessor.shape[1] + 1
        check("markov: confidence", confidence, np.float32, (size,))
    if confidences is not None:
        check("markov: confidences", confidences, np.float32, ids.shape)
    if predecessor.shape[1] != successor.shape[1]:
        raise MismatchError(
            f"markov: codebooks {predecessor.shape} and {successor.shape}; expected equal widths"
        )
    acts.check_readable(successor, len(ids))


def _check_blocks(op: str, num_rows: int, num_seqs: int, step: StepInputs) -> int:
    """The rows of each of B blocks; ``MismatchError`` unless there are some, all alike."""
    most = len(step.row_offsets) - 1
    if not 0 < num_seqs <= most or not num_rows or num_rows % num_seqs:
        raise MismatchError(
            f"{op}: {num_rows} rows in {num_seqs} blocks; expected equally many in each, one or "
            f"more, of at most {most} sequences"
        )
    return num_rows // num_seqs


def _check_ring(name: str, ring: Any, width: int) -> None:
    """Raise ``MismatchError`` unless it is [slots, R, width] f32 with rows."""
    check(name, ring, np.float32, (*ring.shape[:2], width))
    if not ring.shape[0] or not ring.shape[1]:
        raise MismatchError(f"{name} has shape {ring.shape}; expected slots and rows")


def _check_num_rows(op: str, num_rows: int, step: StepInputs) -> None:
    if len(step.tokens) < num_rows:
        raise MismatchError(f"{op}: {num_rows} rows; the step inputs hold {len(step.tokens)}")


def check_causal_conv(u: Any, weight: Any, layer: Any, step: StepInputs, out: Any) -> None:
    """Raise ``MismatchError`` unless all fit the layer's channels, and the step has the rows."""
    shape = layer.shape
    check("causal_conv: u", u, np.float32, (len(u), shape.channels))
    check("causal_conv: weight", weight, np.float32, (shape.channels, shape.conv_kernel))
    check("causal_conv: out", out, np.float32, u.shape)
    if not 1 <= shape.conv_kernel <= MAX_CONV:
        raise MismatchError(
            f"causal_conv: weights for {shape.conv_kernel} rows; expected 1 to {MAX_CONV}"
        )
    _check_sequences("causal_conv", len(u), len(layer.states), step)


def check_gated_delta(
    qkv: Any,
    alpha: Any,
    beta: Any,
    layer: Any,
    step: StepInputs,
    a: Any,
    dt_bias: Any,
    out: Any,
    states_out: Any | None,
) -> None:
    """Raise ``MismatchError`` unless all fit the layer's heads, and the step has the rows."""
    shape, num_rows = layer.shape, len(qkv)
    heads, columns = shape.value_heads, shape.value_dim
    check("gated_delta: qkv", qkv, np.float32, (num_rows, shape.channels))
    check("gated_delta: alpha", alpha, np.float32, (num_rows, heads))
    check("gated_delta: beta", beta, np.float32, (num_rows, heads))
    check("gated_delta: a", a, np.float32, (heads,))
    check("gated_delta: dt_bias", dt_bias, np.float32, (heads,))
    check("gated_delta: out", out, np.float32, (num_rows, heads * columns))
    if states_out is not None:
        states = (num_rows, heads, shape.key_dim, columns)
        check("gated_delta: states_out", states_out, np.float32, states)
    _check_sequences("gated_delta", num_rows, len(layer.states), step)


def _check_sequences(op: str, num_rows: int, num_slots: int, step: StepInputs) -> None:
    if len(step.positions) < num_rows or len(step.slots) > num_slots:
        raise MismatchError(
            f"{op}: {num_rows} rows, and a layer of {num_slots} slots; the step inputs hold "
            f"{len(step.positions)} rows of {len(step.slots)} sequences"
        )


def _check_rows(name: str, array: Any) -> None:
    if array.ndim != 2 or array.strides[1] != array.itemsize:
        raise MismatchError(
            f"{name} has shape {array.shape} and strides {array.strides}; "
            "expected [T, N] with adjacent columns"
        )


def check_top_k(logits: Any, ids: Any, values: Any) -> None:
    """Raise ``MismatchError`` unless [T, V] f32 has k <= min(V, 64) ids int32 and values f32."""
    check("top_k: logits", logits, np.float32, (len(logits), logits.shape[-1]))
    check("top_k: ids", ids, np.int32, (len(logits), ids.shape[-1]))
    check("top_k: values", values, np.float32, ids.shape)
    if not 0 < ids.shape[1] <= min(64, logits.shape[1]):
        raise MismatchError(
            f"top_k: {ids.shape[1]} of {logits.shape[1]} logits; expected 1 to 64, and no more "
            "than there are"
        )


def check_sample(logits: Any, step: StepInputs, draws: Any, edits: Any, ids: Any) -> None:
    """Raise ``MismatchError`` unless [T, V] f32, draws of the step's sequences, edits, ids fit."""
    num_rows, size = logits.shape
    check("sample: logits", logits, np.float32, (num_rows, size))
    check("sample: draws", draws, np.int32, (len(step.row_offsets) - 1, DRAW_INTS))
    check("sample: edits", edits, np.int32, (len(edits), EDIT_INTS))
    check("sample: ids", ids, np.int32, (num_rows,))
    if len(step.positions) < num_rows:
        raise MismatchError(f"sample: {num_rows} rows; the step holds {len(step.positions)}")


def check_route(logits: Any, routed: Routed) -> None:
    """Raise ``MismatchError`` unless logits are [T, E] f32, ids and weights [T, k] with k <= E."""
    num_rows, num_used = len(logits), routed.ids.shape[-1]
    check("route: logits", logits, np.float32, (num_rows, logits.shape[-1]))
    check("route: ids", routed.ids, np.int32, (num_rows, num_used))
    check("route: weights", routed.weights, np.float32, (num_rows, num_used))
    if not 0 < num_used <= logits.shape[1]:
        raise MismatchError(
            f"route: {num_used} of {logits.shape[1]} experts; expected 1 or more, and no more than "
            "there are"
        )


def check_moe(
    acts: Any,
    experts: Experts,
    routed: Routed,
    out: Any,
    add: Any | None,
    shared: Any | None,
    shared_gate: Any | None,
) -> None:
    """Raise ``MismatchError`` unless the experts fit each other, the acts, and rows [T, D]."""
    shape = (len(out), experts.down.shape[0])
    experts.check()
    check("moe: ids", routed.ids, np.int32, (shape[0], experts.num_used))
    check("moe: weights", routed.weights, np.float32, (shape[0], experts.num_used))
    for weight in (experts.gate, experts.up):
        acts.check_readable(weight, shape[0])
    for name, array in (("out", out), ("add", add), ("shared", shared)):
        if array is not None:
            check(f"moe: {name}", array, np.float32, shape)
    if (shared is None) != (shared_gate is None):
        raise MismatchError("moe: shared and shared_gate go together; expected both or neither")
    if shared_gate is not None:
        check("moe: shared_gate", shared_gate, np.float32, (shape[0], 1))


def check_acts(op: str, acts: Any, shape: tuple[int, int]) -> None:
    """Raise ``MismatchError`` unless the acts hold rows of this shape, or more."""
    if acts.num_rows < shape[0] or acts.width != shape[1]:
        raise MismatchError(
            f"{op}: the acts hold {acts.num_rows} rows of width {acts.width}; expected at least "
            f"{shape[0]} of {shape[1]}"
        )


def check_results(op: str, out: Any | None, acts: Any | None, shape: tuple[int, int]) -> None:
    """Raise ``MismatchError`` unless there is out or acts, f32 and rows of this shape."""
    if out is not None:
        check(f"{op}: out", out, np.float32, shape)
    if acts is not None:
        check_acts(op, acts, shape)
    if out is None and (acts is None or acts.x is acts.first is None):
        raise MismatchError(f"{op}: neither out nor a form of acts; expected one to write")


def check_glu(gate: Any, up: Any, out: Any | None, acts: Any | None) -> None:
    """Raise ``MismatchError`` unless gate, up and out are [T, F] f32, and acts hold such rows."""
    shape = (len(gate), gate.shape[-1])
    for name, array in (("gate", gate), ("up", up)):
        check(f"glu: {name}", array, np.float32, shape)
    check_results("glu", out, acts, shape)


def check_rms_norm(
    x: Any, weight: Any | None, out: Any | None, add: Any | None, acts: Any | None
) -> None:
    """Raise ``MismatchError`` unless x, out, add are [T, D] f32, weight [D], and acts such rows."""
    check("rms_norm: x", x, np.float32, (len(x), x.shape[-1]))
    check_results("rms_norm", out, acts, x.shape)
    if weight is not None:
        check("rms_norm: weight", weight, np.float32, (x.shape[1],))
    if add is not None:
        check("rms_norm: add", add, np.float32, x.shape)


def check_step(op: str, step: Any, num_rows: int, cache: Any) -> None:
    """Raise ``MismatchError`` unless the step has that many rows and the layer's table."""
    have, pages = len(step.positions), step.ring_table.shape[1]
    if have < num_rows:
        raise MismatchError(f"{op}: {num_rows} rows; the step inputs hold {have}")
    if cache.ring_pages > pages:
        raise MismatchError(
            f"{op}: the layer is a ring of {cache.ring_pages} pages; the step inputs name {pages}"
        )


def check_rope_kv(
    q: Any, k: Any, v: Any, cache: Any, step: Any, rope: Rope, q_norm: Any, k_norm: Any
) -> None:
    """Raise unless q is [T, H * Dh], k and v [T, Hkv * Dh], norms [Dh], and the step fits."""
    dims = cache.head_dim
    check("rope_kv: q", q, np.float32, (len(q), q.shape[-1] // dims * dims))
    for name, array in (("k", k), ("v", v)):
        check(f"rope_kv: {name}", array, np.float32, (len(q), cache.num_heads * dims))
    for name, norm in (("q_norm", q_norm), ("k_norm", k_norm)):
        if norm is not None:
            check(f"rope_kv: {name}", norm, np.float32, (dims,))
    positions, pairs = rope.table.shape[:2]
    check("rope_kv: the rope table", rope.table, np.float32, (positions, pairs, 2))
    if 2 * pairs > dims:
        raise MismatchError(f"rope_kv: the table rotates {2 * pairs} dims; a head has {dims}")
    pairings = get_args(RopePairing)
    if rope.pairing not in pairings:
        raise UnsupportedError(f"rope_kv: pairing {rope.pairing!r}; expected {', '.join(pairings)}")
    check_step("rope_kv", step, len(q), cache)


def check_attention(
    q: Any,
    cache: Any,
    step: Any,
    window: int,
    softcap: float,
    ahead: bool,
    sinks: Any | None,
    out: Any,
) -> None:
    """Raise ``MismatchError`` unless q, out are [T, H * Dh], sinks [H], and the others fit."""
    group = cache.num_heads * cache.head_dim
    check("attention: q", q, np.float32, (len(q), max(1, q.shape[-1] // group) * group))
    check("attention: out", out, np.float32, q.shape)
    if sinks is not None:
        check("attention: sinks", sinks, np.float32, (q.shape[1] // cache.head_dim,))
    check_step("attention", step, len(q), cache)
    if not 0 <= window < 2**31 or (cache.ring_pages and window == 0):
        raise MismatchError(
            f"attention: window {window} on a layer with {cache.ring_pages} ring pages; "
            "expected a positive window of 31 bits for a ring, or 0 for all positions"
        )
    seen = window + len(q) - 1
    if ahead and 0 < cache.ring_pages * PAGE < min(seen, step.page_table.shape[1] * PAGE):
        raise MismatchError(
            f"attention: a ring of {cache.ring_pages} pages; expected {-(-seen // PAGE)} for a "
            f"window of {window} and {len(q)} rows that see each other: make room in the ring"
        )
    least, most = SOFTCAPS
    if softcap and not least <= softcap <= most:
        raise MismatchError(
            f"attention: softcap {softcap}; expected {least:.0e} to {most:.0e}, or 0 for none"
        )
