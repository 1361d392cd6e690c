"""rope_kv: rotation and storing against the reference by equality, norms by error."""

from functools import partial

import numpy as np
import pytest
from accuracy import assert_accurate
from emulated import SEEDS, Recorder, needs_emulator, placed
from kernel_kv import OP_SETS, KernelKVOps
from kv_data import garbage_layer, make_step, pages_of, reference_and_host
from levels import LEVELS
from rows import assert_same_bits

from specrt.errors import MismatchError, UnsupportedError
from specrt.host import HostOps
from specrt.ops import Rope
from specrt.reference import ReferenceOps

KV_TYPES = ("f32", "f16", "q8_0")
# heads, KV heads, head dim, rotated dims
SHAPES = [
    (3, 1, 32, 32),
    (6, 2, 64, 64),
    (4, 4, 96, 32),
    (5, 1, 80, 20),
    (2, 1, 256, 256),
    (6, 2, 64, 0),  # a table of no pairs: all dims pass through
]


def rope_of(num_rot, pairing, context=400):
    angle = np.arange(context)[:, None] * 10000.0 ** (-np.arange(num_rot // 2) / (num_rot // 2))
    table = np.stack([np.cos(angle), np.sin(angle)], -1).astype(np.float32)
    return Rope(placed(table), pairing)


def rows(positions, heads, kv_heads, dims):
    rng = np.random.default_rng([len(positions), dims])
    q = rng.standard_normal((len(positions), heads * dims), dtype=np.float32)
    k, v = rng.standard_normal((2, len(positions), kv_heads * dims), dtype=np.float32)
    k[:, ::7] *= 40
    return q, k, v


def run(ops, kv_type, kv_heads, dims, inputs, positions, seqs, rope, ring_pages=0, **norms):
    """The rotated q, and what the cache then holds at the rows."""
    step = make_step(ops, positions, seqs, 6, ring_pages)
    num_pages = (max(seqs) + 1) * (ring_pages or 6)
    cache = garbage_layer(ops, num_pages, kv_heads, dims, kv_type, ring_pages)
    q, k, v = (placed(x) for x in inputs)
    ops.rope_kv(q, k, v, cache, step, rope=rope, **norms)
    seqs, positions = np.asarray(seqs), np.asarray(positions)
    pages = np.array(
        [pages_of(cache, step, s, p) for s, p in zip(seqs, positions, strict=True)], np.int32
    )
    return (q, *ops.kv_read(cache, pages, positions))


def two_sequences(num_rows):
    """Rows of two sequences, in runs, across the edge of a page."""
    first = num_rows // 3
    positions = [*range(50, 50 + first), *range(125, 125 + num_rows - first)]
    return positions, [1] * first + [0] * (num_rows - first)


@pytest.mark.parametrize("kv_type", KV_TYPES)
@pytest.mark.parametrize("pairing", ["neox", "interleaved"])
@pytest.mark.parametrize(("heads", "kv_heads", "dims", "num_rot"), SHAPES)
def test_host_equals_reference(kv_type, pairing, heads, kv_heads, dims, num_rot):
    if kv_type == "q8_0" and dims % 32:
        pytest.skip("no such cache")
    rope = rope_of(num_rot, pairing)
    positions, seqs = two_sequences(37)
    inputs = rows(positions, heads, kv_heads, dims)
    for level in LEVELS:
        reference, host = (
            run(ops, kv_type, kv_heads, dims, inputs, positions, seqs, rope)
            for ops in reference_and_host(level)
        )
        for got, expected in zip(host, reference, strict=True):
            assert_same_bits(got, expected)
    passed, before = (x.reshape(37, heads, dims)[..., num_rot:] for x in (host[0], inputs[0]))
    assert (passed == before).all()


@needs_emulator
@pytest.mark.parametrize("kv_type", KV_TYPES)
@pytest.mark.parametrize("pairing", ["neox", "interleaved"])
@pytest.mark.parametrize(
    ("heads", "kv_heads", "dims", "num_rot"), [*SHAPES, (3, 1, 34, 34), (2, 3, 160, 6)]
)
def test_the_kernel_equals_the_reference(kv_type, pairing, heads, kv_heads, dims, num_rot):
    if kv_type == "q8_0" and dims % 32:
        pytest.skip("no such cache")
    rope = rope_of(num_rot, pairing)
    positions, seqs = two_sequences(11)
    inputs = rows(positions, heads, kv_heads, dims)
    expected = run(ReferenceOps(), kv_type, kv_heads, dims, inputs, positions, seqs, rope)
    for seed in SEEDS[:2]:
        ops = KernelKVOps(device=Recorder(seed, flush=not seed))
        results = run(ops, kv_type, kv_heads, dims, inputs, positions, seqs, rope)
        wide = "x4" if dims % 4 == 0 and num_rot % 4 == 0 else "x1"
        assert ops.device.entries == [f"rope_kv_{wide}"]
        for got, reference in zip(results, expected, strict=True):
            assert_same_bits(got, reference)


@needs_emulator
@pytest.mark.parametrize("kv_type", KV_TYPES)
@pytest.mark.parametrize("dims", [32, 128])
def test_both_forms_of_the_kernel_give_the_same_bits(kv_type, dims):
    rope, positions, seqs = rope_of(dims, "neox"), *two_sequences(5)
    inputs = rows(positions, 3, 2, dims)
    norm = np.linspace(0.5, 2, dims, dtype=np.float32)
    results = []
    for offset in (0, 4):
        more = {"q_norm": placed(norm, offset), "k_norm": norm, "eps": 1e-6}
        ops = KernelKVOps()
        results.append(run(ops, kv_type, 2, dims, inputs, positions, seqs, rope, **more))
        assert ops.device.entries == [f"rope_kv_{'x1' if offset else 'x4'}"]
    for got, expected in zip(*results, strict=True):
        assert_same_bits(got, expected)


def test_pairs_turn_by_their_angle():
    rope = rope_of(32, "neox")
    q, k, v = rows([3], 1, 1, 32)
    z = q[0, :16] + 1j * q[0, 16:]
    turned = z * (rope.table[3, :, 0].astype(np.float64) + 1j * rope.table[3, :, 1])
    for ops in reference_and_host(None):
        got, _, stored_v = run(ops, "f32", 1, 32, (q, k, v), [3], [0], rope)
        exact = np.concatenate([turned.real, turned.imag])[None]
        assert_accurate(got, exact.astype(np.float32), exact)
        assert_same_bits(stored_v.reshape(1, 32), v)
    interleaved = np.stack([q[0, :16], q[0, 16:]], -1).reshape(1, 32)
    for ops in reference_and_host(None):
        other, *_ = run(
            ops, "f32", 1, 32, (interleaved, k, v), [3], [0], rope_of(32, "interleaved")
        )
        assert_same_bits(other.reshape(16, 2).T.reshape(1, 32), got)


@pytest.mark.parametrize(("heads", "kv_heads", "dims", "num_rot"), SHAPES)
def test_head_norms(heads, kv_heads, dims, num_rot):
    check_norms([partial(HostOps, 1, level) for level in LEVELS], heads, kv_heads, dims, num_rot)


@needs_emulator
@pytest.mark.parametrize(("heads", "kv_heads", "dims", "num_rot"), [*SHAPES, (3, 1, 34, 34)])
def test_head_norms_of_the_kernel(heads, kv_heads, dims, num_rot):
    check_norms([KernelKVOps, partial(KernelKVOps, 5)], heads, kv_heads, dims, num_rot)


def check_norms(op_sets, heads, kv_heads, dims, num_rot):
    """Each within the bounds, all the same bits."""
    rope, positions, seqs = rope_of(num_rot, "neox"), *two_sequences(7)
    inputs = rows(positions, heads, kv_heads, dims)
    rng = np.random.default_rng(3)
    norms = {n: rng.standard_normal(dims, dtype=np.float32) for n in ("q_norm", "k_norm")}

    def normed(x, weight):
        x = x.reshape(7, -1, dims).astype(np.float64)
        x = x / np.sqrt((x * x).mean(-1, keepdims=True) + np.float64(np.float32(1e-6))) * weight
        half = num_rot // 2
        cos, sin = np.moveaxis(rope.table[positions].astype(np.float64)[:, None], -1, 0)
        a, b = x[..., :half].copy(), x[..., half:num_rot].copy()
        x[..., :half], x[..., half:num_rot] = a * cos - b * sin, b * cos + a * sin
        return x

    reference, *results = (
        run(ops(), "f32", kv_heads, dims, inputs, positions, seqs, rope, eps=1e-6, **norms)
        for ops in (ReferenceOps, *op_sets)
    )
    for got in results:
        for i, norm in ((0, "q_norm"), (1, "k_norm")):
            exact = normed(inputs[i], norms[norm])
            assert_accurate(got[i].reshape(exact.shape), reference[i].reshape(exact.shape), exact)
    for got in results:
        for mine, first in zip(got, results[0], strict=True):
            assert_same_bits(mine, first)


LEVEL_SETS = [pytest.param(partial(HostOps, threads=1, level=level), id=level) for level in LEVELS]


@pytest.mark.parametrize("ops", [*LEVEL_SETS, *OP_SETS[1:]])
@pytest.mark.parametrize("kv_type", KV_TYPES)
def test_rows_stand_alone(ops, kv_type):
    rope, ops = rope_of(32, "neox"), ops()
    positions, seqs = two_sequences(65)
    inputs = rows(positions, 4, 2, 32)
    norm = np.linspace(0.5, 2, 32, dtype=np.float32)
    more = {"q_norm": norm, "k_norm": norm, "eps": 1e-6}
    whole = run(ops, kv_type, 2, 32, inputs, positions, seqs, rope, **more)
    for start, stop in [*((0, n) for n in (*range(1, 18), 33)), (21, 22), (40, 65)]:
        part = [x[start:stop] for x in inputs]
        got = run(ops, kv_type, 2, 32, part, positions[start:stop], seqs[start:stop], rope, **more)
        for mine, all_rows in zip(got, whole, strict=True):
            assert_same_bits(mine, all_rows[start:stop])


@pytest.mark.parametrize("start", range(120, 136))
@pytest.mark.parametrize("ops", OP_SETS)
def test_rings_wrap(start, ops):
    rope, positions = rope_of(16, "neox"), list(range(start, start + 70))
    inputs = rows(positions, 2, 1, 32)
    results, reference = (
        run(o, "f16", 1, 32, inputs, positions, [0] * 70, rope, ring_pages=2)
        for o in (ops(), ReferenceOps())
    )
    for got, expected in zip(results, reference, strict=True):
        assert_same_bits(got, expected)


@pytest.mark.parametrize("ops", [*OP_SETS, pytest.param(ReferenceOps, id="reference")])
def test_blocks_that_q8_0_stores_specially(ops):
    k = np.zeros((1, 32 * 5), np.float32)
    k[0, 32], k[0, 64:96], k[0, 96] = np.inf, np.float32(2.0**-70), np.nan
    k[0, 128:] = np.linspace(-1e-4, 1e-4, 32)
    ops = ops()
    step, cache = make_step(ops, [9], [0], 1), garbage_layer(ops, 1, 1, 160, "q8_0")
    flat = Rope(np.tile(np.float32([1, 0]), (10, 1, 1)), "neox")
    ops.rope_kv(np.zeros((1, 160), np.float32), k.copy(), k.copy(), cache, step, rope=flat)
    for blocks in ops.kv_read(cache, np.array([0]), np.array([9])):
        scales = np.ascontiguousarray(blocks[0, 0, :, :2]).view(np.float16)[:, 0]
        assert scales[[0, 2]].tolist() == [0, 0] and np.isnan(scales[[1, 3]]).all()
        assert not blocks[0, 0, :4, 2:].any()
        assert blocks[0, 0, 4, [2, 33]].view(np.int8).tolist() == [-127, 127]


@needs_emulator
@pytest.mark.parametrize("kv_type", ["f16", "q8_0"])
def test_the_kernel_stores_subnormal_halves_as_the_reference_does(kv_type):
    """The scale of a block, or a value of f16, may be one; in float32 none of them is."""
    k = np.float32(2.0) ** np.linspace(-29, -9, 16 * 32, dtype=np.float32).reshape(1, -1)
    k[0, ::3] *= -1
    q, flat = np.zeros_like(k), Rope(np.tile(np.float32([1, 0]), (1, 1, 1)), "neox")
    got, expected = (
        run(ops, kv_type, 4, 128, (q, k, k), [0], [0], flat)[1]
        for ops in (KernelKVOps(), ReferenceOps())
    )
    assert_same_bits(got, expected)
    halves = got if kv_type == "f16" else np.ascontiguousarray(got[..., :2]).view(np.float16)
    assert ((halves != 0) & (np.abs(halves) < 2.0**-14)).any() and (halves == 0).any()


@needs_emulator
def test_the_kernel_stores_what_f16_has_no_finite_number_for():
    k, v = np.zeros((2, 1, 32), np.float32)
    v[0, :5] = np.nan, np.inf, -np.inf, 65519, 65520
    flat = Rope(np.tile(np.float32([1, 0]), (1, 1, 1)), "neox")
    *_, got = run(KernelKVOps(), "f16", 1, 32, (k, k, v), [0], [0], flat)
    assert np.isnan(got[0, 0, 0])
    assert got[0, 0, 1:5].tolist() == [np.inf, -np.inf, 65504, np.inf]


@pytest.mark.parametrize("kv_type", KV_TYPES)
def test_saved_rows_come_back_bit_for_bit_and_move_between_op_sets(kv_type):
    reference, host = reference_and_host(None)
    rope, positions = rope_of(64, "neox"), list(range(30, 90))
    inputs = rows(positions, 2, 2, 64)
    saved = run(host, kv_type, 2, 64, inputs, positions, [0] * 60, rope)[1:]
    for ops in (reference, host, KernelKVOps()):
        cache = garbage_layer(ops, 3, 2, 64, kv_type)
        pages = np.array(positions) // 64 + 1
        ops.kv_write(cache, pages, np.array(positions), *saved)
        for got, expected in zip(
            ops.kv_read(cache, pages, np.array(positions)), saved, strict=True
        ):
            assert (got.view(np.uint8) == expected.view(np.uint8)).all()


@pytest.mark.parametrize("ops", OP_SETS)
def test_wrong_arguments_are_refused(ops):
    ops, rope = ops(), rope_of(64, "neox")
    with pytest.raises(UnsupportedError, match="q8_0"):
        ops.kv_layer(1, 1, 80, "q8_0", 0)
    cache, step = ops.kv_layer(2, 1, 32, "f16", 0), make_step(ops, [0, 1], [0, 0], 2)
    q, k, v = rows([0, 1], 2, 1, 32)
    with pytest.raises(MismatchError, match="rotates 64 dims"):
        ops.rope_kv(q, k, v, cache, step, rope=rope)
    with pytest.raises(MismatchError, match="k is"):
        ops.rope_kv(q, k[:1], v, cache, step, rope=rope_of(32, "neox"))
    with pytest.raises(MismatchError, match="hold 2"):
        ops.rope_kv(*rows([0] * 3, 2, 1, 32), cache, step, rope=rope_of(32, "neox"))
