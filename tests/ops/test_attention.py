"""attention: host and kernel against a float64 oracle, rows alone against rows together."""

from functools import partial

import numpy as np
import pytest
from accuracy import assert_accurate
from attention_case import Case, queries
from attention_order import attend
from emulated import needs_emulator
from kernel_kv import OP_SETS, KernelKVOps
from kv_data import make_step, reference_and_host
from levels import LEVELS
from rows import assert_same_bits, nans

from specrt.errors import MismatchError
from specrt.host import HostOps
from specrt.reference import ReferenceOps

KV_TYPES = ("f32", "f16", "q8_0")
# heads, KV heads, head dim
SHAPES = [(3, 1, 32), (4, 2, 48), (9, 3, 64), (5, 5, 80), (8, 2, 128), (4, 1, 256), (40, 1, 20)]
TILES = [*range(1, 18), 33, 65]
LEVEL_SETS = [pytest.param(partial(HostOps, threads=1, level=level), id=level) for level in LEVELS]


def two_sequences(num_rows, ends):
    """Windows that end two sequences: first of sequence 1, then of sequence 0."""
    first = num_rows // 3
    positions = [*range(ends[1] - first, ends[1]), *range(ends[0] - num_rows + first, ends[0])]
    return positions, [1] * first + [0] * (num_rows - first)


@pytest.mark.parametrize("kv_type", KV_TYPES)
@pytest.mark.parametrize(("heads", "kv_heads", "dims"), SHAPES)
@pytest.mark.parametrize("window", [0, 75])
def test_against_the_oracle(kv_type, heads, kv_heads, dims, window):
    if kv_type == "q8_0" and dims % 32:
        kv_type = "f16"
    num_rows, ends = 19, (301, 70)
    positions, seqs = two_sequences(num_rows, ends)
    q = queries(num_rows, heads, dims)
    results = []
    for level in LEVELS:
        reference, host = (
            Case(ops, kv_type, kv_heads, dims, ends) for ops in reference_and_host(level)
        )
        baseline = reference.run(q, positions, seqs, window)
        exact = reference.oracle(q, positions, seqs, window)
        results.append(host.run(q, positions, seqs, window))
        assert_accurate(results[-1], baseline, exact)
        assert_same_bits(results[-1], results[0])


@pytest.mark.parametrize(
    ("heads", "kv_heads", "dims", "options"),
    [
        (3, 1, 32, {}),
        (4, 2, 64, {"window": 40}),
        (2, 2, 80, {"softcap": 3.0}),
        (7, 1, 128, {"window": 75, "softcap": 9.5}),
        (2, 1, 256, {}),
    ],
)
@pytest.mark.parametrize("kv_type", KV_TYPES)
@pytest.mark.parametrize("level", LEVELS)
def test_the_order_of_every_sum(level, kv_type, heads, kv_heads, dims, options):
    """Of dots, weights, values and chunks, for rows whose views differ and for single rows."""
    if kv_type == "q8_0" and dims % 32:
        kv_type = "f16"
    case = Case(HostOps(threads=1, level=level), kv_type, kv_heads, dims, (150, 1))
    positions, q = [0, 63, 64, 130, 131, 149], queries(6, heads, dims)
    scale, window = 0.11, options.get("window", 0)
    expected = np.empty((6, heads, dims), np.float32)
    k, v = (x.astype(np.float32) for x in case.stored[0])
    for row, position in enumerate(positions):
        first = max(0, position - window + 1) if window else 0
        for head in range(heads):
            seen = (x[: position + 1, head * kv_heads // heads] for x in (k, v))
            one = q[row, head * dims : (head + 1) * dims]
            expected[row, head] = attend(one, *seen, first, scale, options.get("softcap", 0.0))
    expected = expected.reshape(6, -1)
    assert_same_bits(case.run(q, positions, [0] * 6, scale=scale, **options), expected)
    for row in (1, 5):
        rows = slice(row, row + 1)
        got = case.run(q, positions, [0] * 6, scale=scale, rows=rows, **options)
        assert_same_bits(got, expected[rows])


@needs_emulator
@pytest.mark.parametrize("kv_type", KV_TYPES)
@pytest.mark.parametrize(("heads", "kv_heads", "dims"), [*SHAPES, (3, 1, 34), (2, 1, 512)])
@pytest.mark.parametrize("window", [0, 75])
def test_the_kernel_against_the_oracle(kv_type, heads, kv_heads, dims, window):
    """All rows at once, and ten of them whose chunks are merged by another kernel."""
    if kv_type == "q8_0" and dims % 32:
        kv_type = "f16"
    ends = (301, 70)
    positions, seqs = two_sequences(19, ends)
    q = queries(19, heads, dims)
    reference, kernel = (
        Case(ops, kv_type, kv_heads, dims, ends) for ops in (ReferenceOps(), KernelKVOps())
    )
    got, few = (kernel.run(q, positions, seqs, window, rows=r) for r in (slice(19), slice(4, 14)))
    entry, again, merge = kernel.ops.device.entries
    assert entry == again == "attention_pages" and merge.startswith("attention_merge")
    baseline = reference.run(q, positions, seqs, window)
    assert_accurate(got, baseline, reference.oracle(q, positions, seqs, window))
    assert_same_bits(few, got[4:14])


@pytest.mark.parametrize("softcap", [0.7, 7.3, 50.0])
@pytest.mark.parametrize("kv_type", KV_TYPES)
@pytest.mark.parametrize("ops", [*LEVEL_SETS, *OP_SETS[1:]])
def test_softcap(softcap, kv_type, ops):
    """Of scores far below it, about as large and far above it."""
    ends, options = (301, 70), {"window": 75, "softcap": softcap}
    positions, seqs = two_sequences(19, ends)
    q = queries(19, 9, 64) * np.geomspace(0.01, 100, 19, dtype=np.float32)[:, None]
    reference, case = (Case(o, kv_type, 3, 64, ends) for o in (ReferenceOps(), ops()))
    got = case.run(q, positions, seqs, **options)
    exact = reference.oracle(q, positions, seqs, **options)
    assert_accurate(got, reference.run(q, positions, seqs, **options), exact)
    few = case.run(q, positions, seqs, **options, rows=slice(4, 14))
    assert_same_bits(few, got[4:14])


@pytest.mark.parametrize("ops", [*LEVEL_SETS, *OP_SETS[1:]])
def test_a_softcap_far_above_the_scores_changes_little_and_none_nothing(ops):
    case, q = Case(ops(), "f16", 2, 32, (150, 1)), queries(3, 4, 32)
    plain, none, high = (
        case.run(q, [147, 148, 149], [0, 0, 0], **options)
        for options in ({}, {"softcap": 0.0}, {"softcap": 1e4})
    )
    assert_same_bits(none, plain)
    assert 0 < np.abs(high - plain).max() < 1e-4


def level_rows(level):
    """Portable C computes fma in software: a few sizes do."""
    return TILES if level != "portable" else [1, 2, 17]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kv_type", KV_TYPES)
@pytest.mark.parametrize("window", [0, 40])
@pytest.mark.parametrize(("heads", "kv_heads", "dims"), [(3, 1, 32), (4, 2, 64)])
def test_rows_stand_alone(level, kv_type, window, heads, kv_heads, dims):
    num_rows, ends = level_rows(level)[-1], (230, 131)
    positions, seqs = two_sequences(num_rows, ends)
    case = Case(HostOps(threads=1, level=level), kv_type, kv_heads, dims, ends)
    q = queries(num_rows, heads, dims)
    whole = case.run(q, positions, seqs, window)
    assert np.isfinite(whole).all()
    for size in level_rows(level):
        for start in {0, (num_rows - size) // 2, num_rows - size}:
            rows = slice(start, start + size)
            assert_same_bits(case.run(q, positions, seqs, window, rows=rows), whole[rows])


@needs_emulator
@pytest.mark.parametrize("kv_type", KV_TYPES)
@pytest.mark.parametrize(
    ("heads", "kv_heads", "dims", "window", "seed"), [(3, 1, 32, 40, 5), (4, 2, 64, 0, 6)]
)
def test_rows_of_the_kernel_stand_alone(kv_type, heads, kv_heads, dims, window, seed):
    positions, seqs = two_sequences(65, ends := (230, 131))
    case = Case(KernelKVOps(seed), kv_type, kv_heads, dims, ends)
    q = queries(65, heads, dims)
    whole = case.run(q, positions, seqs, window)
    assert np.isfinite(whole).all()
    for size in TILES:
        start = 65 - size if size % 3 else (65 - size) // 3
        rows = slice(start, start + size)
        assert_same_bits(case.run(q, positions, seqs, window, rows=rows), whole[rows])
        case.ops = KernelKVOps(seed + size, split=size % 2)


@needs_emulator
def test_rows_of_two_sequences_by_turns():
    case = Case(KernelKVOps(), "f16", 2, 32, (150, 200))
    q, positions = queries(14, 6, 32), [140, 190, 141, 191, 142, 192, 143, 193, *range(144, 150)]
    seqs = [0, 1] * 4 + [0] * 6
    whole = case.run(q, positions, seqs)
    for row in range(14):
        assert_same_bits(case.run(q, positions, seqs, rows=slice(row, row + 1)), whole[[row]])


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_change_nothing(threads):
    positions, seqs = two_sequences(65, (300, 100))
    q = queries(65, 6, 32)
    one, more = (Case(HostOps(threads=n), "f16", 2, 32, (300, 100)) for n in (1, threads))
    for rows in (slice(0, 1), slice(20, 29), slice(0, 65)):
        expected = one.run(q, positions, seqs, rows=rows)
        for _ in range(5):
            assert_same_bits(more.run(q, positions, seqs, rows=rows), expected)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("window", [0, 100])
def test_a_program_follows_the_step(level, window):
    """How many groups of chunks there are depends on the lengths, from run to run."""
    ends = (340, 3)
    case = Case(HostOps(threads=3, level=level), "f16", 2, 32, ends)
    q, out = queries(2, 6, 32), nans(2, 192)
    step = make_step(case.ops, [0, 0, 0], [0, 0, 1], case.num_pages)
    with case.ops.record() as program:
        case.ops.attention(q, case.cache, step, scale=0.11, window=window, out=out)
    for last in (5, 339, 63, 64, 130, 339, 1, 200):
        step.positions[:2] = last - 1, last
        out[:] = np.nan
        program.run()
        assert_same_bits(out, case.run(q, [last - 1, last], [0, 0], window))


@pytest.mark.parametrize("position", [0, 1, 15, 16, 62, 63, 64, 65, 127, 128, 200])
@pytest.mark.parametrize("window", [0, 1, 2, 64, 65])
@pytest.mark.parametrize("ops", OP_SETS)
def test_edges_of_chunks_and_windows(position, window, ops):
    q = queries(1, 3, 32)
    reference, case = (Case(o, "f16", 1, 32, (position + 1, 1)) for o in (ReferenceOps(), ops()))
    got = case.run(q, [position], [0], window)
    baseline = reference.run(q, [position], [0], window)
    assert_accurate(got, baseline, reference.oracle(q, [position], [0], window))


@pytest.mark.parametrize("window", [2**24, 2**31 - 63, 2**31 - 62, 2**31 - 1])
@pytest.mark.parametrize("ops", OP_SETS)
def test_a_window_behind_every_position_is_none(window, ops):
    q = queries(2, 3, 32)
    case = Case(ops(), "f16", 1, 32, (90, 1))
    got = case.run(q, [88, 89], [0, 0], window)
    assert_same_bits(got, case.run(q, [88, 89], [0, 0]))


@pytest.mark.parametrize("end", range(185, 202))
@pytest.mark.parametrize("num_rows", [1, 9])
@pytest.mark.parametrize("ops", OP_SETS)
def test_a_ring_equals_full_pages_at_every_offset_around_the_wrap(end, num_rows, ops):
    positions, seqs = range(end - num_rows, end), [0] * num_rows
    q = queries(num_rows, 4, 32)
    ops = ops()
    full = Case(ops, "f16", 2, 32, (end, 1))
    ring = Case(ops, "f16", 2, 32, (end, 1), ring_pages=3)
    got = ring.run(q, positions, seqs, window=100)
    assert_same_bits(got, full.run(q, positions, seqs, window=100))
    reference = Case(ReferenceOps(), "f16", 2, 32, (end, 1), ring_pages=3)
    baseline = reference.run(q, positions, seqs, window=100)
    assert_accurate(got, baseline, full.oracle(q, positions, seqs, window=100))


@pytest.mark.parametrize("ops", [*LEVEL_SETS, *OP_SETS[1:]])
def test_what_other_rows_store_is_not_seen(ops):
    # Row 0 sees positions up to 70; a NaN and an inf at 71 and 72 belong to later rows alone.
    case = Case(ops(), "f32", 1, 32, (73, 1))
    q = queries(3, 2, 32)
    before = case.run(q, [70, 71, 72], [0, 0, 0])
    step = make_step(case.ops, [0, 0], [0, 1], case.num_pages)
    bad = np.full((2, 1, 32), np.nan, np.float32)
    bad[1] = np.inf
    case.ops.kv_write(case.cache, step.page_table[0, [1, 1]], np.array([71, 72]), bad, bad)
    after = case.run(q, [70, 71, 72], [0, 0, 0])
    assert_same_bits(after[:1], before[:1])
    assert np.isnan(after[1:]).all()


@pytest.mark.parametrize("num_rows", [1, 2])
@pytest.mark.parametrize("ops", OP_SETS)
def test_thousands_of_heads_on_one_kv_head(num_rows, ops):
    """What is kept per query lies in the scratch: a file's metadata decides how many there are."""
    q = queries(num_rows, 4096, 32)
    reference, case = (Case(o, "f16", 1, 32, (70, 1)) for o in (ReferenceOps(), ops()))
    positions, seqs = range(70 - num_rows, 70), [0] * num_rows
    got, baseline = (c.run(q, positions, seqs) for c in (case, reference))
    assert_accurate(got, baseline, reference.oracle(q, positions, seqs))


@pytest.mark.parametrize("ops", OP_SETS)
def test_large_scores_do_not_overflow(ops):
    reference, case = (Case(o, "f32", 1, 32, (90, 1)) for o in (ReferenceOps(), ops()))
    q = queries(2, 3, 32) * np.float32(300)
    got, baseline = (c.run(q, [88, 89], [0, 0], scale=1.0) for c in (case, reference))
    assert_accurate(got, baseline, reference.oracle(q, [88, 89], [0, 0], scale=1.0))


@pytest.mark.parametrize("ops", OP_SETS)
def test_wrong_arguments_are_refused(ops):
    ops = ops()
    cache, step = ops.kv_layer(4, 2, 32, "f16", 2), make_step(ops, [0, 1], [0, 1], 2, 2)
    q = queries(2, 4, 32)
    with pytest.raises(MismatchError, match="window 0"):
        ops.attention(q, cache, step, scale=1, window=0, out=nans(*q.shape))
    with pytest.raises(MismatchError, match="window 4294967295"):
        ops.attention(q, cache, step, scale=1, window=2**32 - 1, out=nans(*q.shape))
    for softcap in (-1.0, float("nan"), float("inf"), 1e-40):
        with pytest.raises(MismatchError, match="softcap"):
            ops.attention(q, cache, step, scale=1, window=9, out=nans(*q.shape), softcap=softcap)
    with pytest.raises(MismatchError, match="out"):
        ops.attention(q, cache, step, scale=1, window=9, out=nans(2, 64))
    with pytest.raises(MismatchError, match="q is"):
        ops.attention(queries(2, 3, 32), cache, step, scale=1, window=9, out=nans(2, 96))
    with pytest.raises(MismatchError, match="ring of 2"):
        step = make_step(ops, [0, 1], [0, 1], 2)
        ops.attention(q, cache, step, scale=1, window=9, out=nans(*q.shape))
