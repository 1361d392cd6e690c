"""What block drafters ask of attention: rows that see later ones, sinks, positions without keys."""

from functools import partial

import numpy as np
import pytest
from accuracy import assert_accurate
from attention_case import Case, queries
from attention_order import attend
from emulated import broken, needs_emulator
from kernel_kv import OP_SETS, KernelKVOps
from kv_data import make_step, reference_and_host
from levels import LEVELS
from ops.rows import assert_same_bits, nans

from specrt.errors import MismatchError
from specrt.host import HostOps
from specrt.reference import ReferenceOps

KV_TYPES = ("f32", "f16", "q8_0")
LEVEL_SETS = [pytest.param(partial(HostOps, threads=1, level=level), id=level) for level in LEVELS]
ENDS = (301, 70)
"""Blocks end there: the first one's rows lie in the chunk that begins at 256."""
SINKS = np.float32([-np.inf, -2, 0, 3.5, 1e30, 40])
OPTIONS = [
    pytest.param({"ahead": True}, (0, 0), id="ahead"),
    pytest.param({"ahead": True, "window": 75}, (0, 0), id="ahead in a window"),
    pytest.param({"ahead": True, "window": 2}, (0, 0), id="ahead in a window of two"),
    pytest.param({"sinks": SINKS}, (0, 0), id="sinks"),
    pytest.param({"softcap": 7.5}, (130, 17), id="lowest"),
    pytest.param({"window": 75}, (247, 60), id="lowest in a window"),
    pytest.param({"ahead": True, "sinks": SINKS, "window": 90}, (212, 63), id="all"),
]


def blocks(sizes, ends=ENDS):
    """The last rows of sequence 0, and those of sequence 1."""
    pairs = [(range(end - size, end), [seq] * size) for seq, (size, end) in
             enumerate(zip(sizes, ends, strict=True))]  # fmt: skip
    return [p for positions, _ in pairs for p in positions], [s for _, seqs in pairs for s in seqs]


@pytest.mark.parametrize(("options", "lowest"), OPTIONS)
@pytest.mark.parametrize("kv_type", KV_TYPES)
def test_against_the_oracle(kv_type, options, lowest):
    """Of every level the same bits."""
    positions, seqs = blocks((7, 4))
    q, results = queries(11, 6, 64, seed=1), []
    for level in LEVELS:
        reference, host = (
            Case(ops, kv_type, 2, 64, ENDS, lowest=lowest) for ops in reference_and_host(level)
        )
        baseline = reference.run(q, positions, seqs, **options)
        results.append(host.run(q, positions, seqs, **options))
        assert_accurate(results[-1], baseline, reference.oracle(q, positions, seqs, **options))
        assert_same_bits(results[-1], results[0])


@pytest.mark.parametrize("num_rows", [1, 5, 20])
@pytest.mark.parametrize("level", LEVELS)
def test_the_order_of_every_sum(level, num_rows):
    """Sinks come last, whether a part walks all chunks or whoever finishes merges them."""
    lowest, end, window, scale = 100, 270, 150, 0.11
    case = Case(HostOps(threads=1, level=level), "f16", 2, 64, (end, 1), lowest=(lowest, 0))
    positions, q = range(end - num_rows, end), queries(num_rows, 6, 64)
    got = case.run(q, positions, [0] * num_rows, window, scale, ahead=True, sinks=SINKS)
    k, v = (x.astype(np.float32) for x in case.stored[0])
    for row in {0, num_rows // 2, num_rows - 1}:
        first = max(lowest, positions[row] - window + 1)
        for head, (one, sink) in enumerate(zip(q[row].reshape(6, 64), SINKS, strict=True)):
            expected = attend(one, k[:, head // 3], v[:, head // 3], first, scale, sink=sink)
            assert_same_bits(got[row, 64 * head : 64 * (head + 1)], expected)


@needs_emulator
@pytest.mark.parametrize(("options", "lowest"), OPTIONS)
@pytest.mark.parametrize(("kv_type", "dims"), [("f32", 34), ("f16", 64), ("q8_0", 96)])
def test_the_kernel_against_the_oracle(kv_type, dims, options, lowest):
    """Rows cut along the keys and merged by another kernel, and rows that are not."""
    positions, seqs = blocks((7, 4))
    q = queries(11, 6, dims, seed=1)
    reference, kernel, whole = (
        Case(ops, kv_type, 2, dims, ENDS, lowest=lowest)
        for ops in (ReferenceOps(), KernelKVOps(), KernelKVOps(split=False))
    )
    got = kernel.run(q, positions, seqs, **options)
    few_chunks = options.get("window") == 2  # of which no row sees as many as groups need
    assert few_chunks or kernel.ops.device.entries[-1].startswith("attention_merge")
    baseline = reference.run(q, positions, seqs, **options)
    assert_accurate(got, baseline, reference.oracle(q, positions, seqs, **options))
    assert_same_bits(whole.run(q, positions, seqs, **options), got)
    assert whole.ops.device.entries == ["attention_pages"]


@needs_emulator
@pytest.mark.parametrize("lowest", [0, 100, 450])
@pytest.mark.parametrize("window", [0, 300])
def test_long_rows_are_merged_span_by_span(lowest, window, tmp_path):
    """Two spans a row instead of 128: spans of several chunks, cut where the row's keys begin."""
    device, ends = (
        broken(tmp_path, "attention.cuh", "#define SPANS 128", "#define SPANS 2"),
        (701, 70),
    )
    rows, q = blocks((7, 4), ends), queries(11, 6, 32, seed=1)
    options = {"window": window, "ahead": True, "sinks": SINKS}
    reference, split, whole = (
        Case(ops, "f16", 2, 32, ends, num_pages=11, lowest=(lowest, 0))
        for ops in (ReferenceOps(), KernelKVOps(device=device), KernelKVOps(0, device, split=False))
    )
    got = split.run(q, *rows, **options)
    assert_same_bits(whole.run(q, *rows, **options), got)
    oracle = reference.oracle(q, *rows, **options)
    assert_accurate(got, reference.run(q, *rows, **options), oracle)


@pytest.mark.parametrize("window", [0, 75])
@pytest.mark.parametrize("kv_type", KV_TYPES)
@pytest.mark.parametrize("ops", [*LEVEL_SETS, *OP_SETS[1:]])
def test_a_block_stands_alone(ops, kv_type, window):
    """Beside another sequence's block, and with any number of rows before it in a tile."""
    case = Case(ops(), kv_type, 2, 32, ENDS, lowest=(212, 0))
    q, sizes = queries(24, 6, 32), (15, 9)
    options = {"window": window, "ahead": True, "sinks": SINKS}
    both = case.run(q, *blocks(sizes), **options)
    assert np.isfinite(both).all()
    assert_same_bits(case.run(q[:15], *blocks((15, 0)), **options), both[:15])
    assert_same_bits(case.run(q[15:], *blocks((0, 9)), **options), both[15:])


@pytest.mark.parametrize("window", [0, 2, 66, 75])
@pytest.mark.parametrize("end", [258, 301, 320])
@pytest.mark.parametrize("ops", [*LEVEL_SETS, *OP_SETS[1:]])
def test_the_first_rows_alone_see_those_behind_them(ops, end, window):
    """What nobody reads of a block need not attend."""
    case, q = Case(ops(), "f16", 2, 32, (end, 1)), queries(15, 6, 32)
    rows, options = blocks((15, 0), (end, 1)), {"window": window, "ahead": True, "sinks": SINKS}
    whole = case.run(q, *rows, **options)
    for num_rows in (1, 2, 9):
        assert_same_bits(case.run(q[:num_rows], *rows, **options), whole[:num_rows])


@pytest.mark.parametrize("ops", [*LEVEL_SETS, *OP_SETS[1:]])
def test_only_the_last_row_sees_the_same_with_and_without(ops):
    case, q = Case(ops(), "f16", 2, 32, ENDS), queries(9, 6, 32)
    positions, seqs = blocks((5, 4))
    plain = case.run(q, positions, seqs)
    ahead = case.run(q, positions, seqs, ahead=True)
    same = [row.tobytes() == other.tobytes() for row, other in zip(plain, ahead, strict=True)]
    assert same == [False] * 4 + [True] + [False] * 3 + [True]


@pytest.mark.parametrize("end", [*range(63, 67), *range(127, 131)])
@pytest.mark.parametrize("num_rows", [2, 16])
@pytest.mark.parametrize("ops", OP_SETS)
def test_ahead_over_the_edge_of_a_chunk(end, num_rows, ops):
    q, ends = queries(num_rows, 3, 32), (end, 1)
    reference, case = (Case(o, "f16", 1, 32, ends) for o in (ReferenceOps(), ops()))
    rows = blocks((num_rows, 0), ends)
    for window in (0, 1, 49, 64):
        got, baseline = (c.run(q, *rows, window, ahead=True) for c in (case, reference))
        assert_accurate(got, baseline, reference.oracle(q, *rows, window, ahead=True))


@pytest.mark.parametrize("lowest", [1, 15, 16, 63, 64, 65, 128, 191])
@pytest.mark.parametrize("num_rows", [1, 4])
@pytest.mark.parametrize("ops", OP_SETS)
def test_positions_without_keys_are_as_those_before_a_window(lowest, num_rows, ops):
    """And what stands there, here huge values or NaN, is not seen."""
    ends = (192, 1)
    q, rows = queries(num_rows, 4, 32), blocks((num_rows, 0), ends)
    ops = ops()
    for kv_type in KV_TYPES:
        full, rest = (
            Case(ops, kv_type, 2, 32, ends, lowest=(n, 0)) for n in (0, min(lowest, 192 - num_rows))
        )
        full.ops.kv_write(
            full.cache,
            make_step(ops, [0], [1], 6).page_table[0, np.arange(rest.lowest[0], 192) // 64],
            np.arange(rest.lowest[0], 192),
            *[x[rest.lowest[0] :] for x in stored_of(rest)],
        )
        for row, position in enumerate(rows[0]):
            window = position - rest.lowest[0] + 1
            alone = (q[[row]], [position], [0])
            assert_same_bits(rest.run(*alone), full.run(*alone, window))


def stored_of(case):
    """Keys and values of sequence 0 as its cache holds them."""
    length = case.stored[0].shape[1]
    pages = make_step(case.ops, [0], [1], case.num_pages).page_table[0, np.arange(length) // 64]
    return case.ops.kv_read(case.cache, pages, np.arange(length))


@pytest.mark.parametrize("end", range(185, 202, 2))
@pytest.mark.parametrize("lowest", [0, 150])
@pytest.mark.parametrize("ops", OP_SETS)
def test_a_ring_equals_full_pages_around_the_wrap(end, lowest, ops):
    q, rows, ends = queries(9, 4, 32), blocks((9, 0), (end, 1)), (end, 1)
    ops, options = ops(), {"window": 184, "ahead": True, "sinks": SINKS[:4]}
    full, ring = (Case(ops, "f16", 2, 32, ends, ring_pages=n, lowest=(lowest, 0)) for n in (0, 3))
    assert_same_bits(ring.run(q, *rows, **options), full.run(q, *rows, **options))


@pytest.mark.parametrize("num_rows", [2, 20])
@pytest.mark.parametrize("ops", [*LEVEL_SETS, *OP_SETS[1:]])
def test_a_sink_takes_a_share_and_gives_nothing(num_rows, ops):
    case, q = Case(ops(), "f16", 2, 32, (150, 1)), queries(num_rows, 4, 32)
    rows = blocks((num_rows, 0), (150, 1))
    plain = case.run(q, *rows)
    got = case.run(q, *rows, sinks=[-np.inf, 1e30, -1e30, 3]).reshape(num_rows, 4, 32)
    plain = plain.reshape(num_rows, 4, 32)
    assert_same_bits(got[:, [0, 2]], plain[:, [0, 2]])
    assert not got[:, 1].any()
    share = got[:, 3] / plain[:, 3]
    assert (share > 0).all() and (share < 1).all() and np.ptp(share, axis=1).max() < 1e-5


@pytest.mark.parametrize("level", LEVELS)
def test_a_program_follows_the_step(level):
    case = Case(HostOps(threads=3, level=level), "f16", 2, 32, (340, 1))
    q, out = queries(4, 4, 32), nans(4, 128)
    step = make_step(case.ops, [0] * 5, [0] * 4 + [1], case.num_pages)
    step.row_offsets[:] = 0, 4, 5
    options = {"window": 100, "ahead": True, "sinks": SINKS[:4]}
    with case.ops.record() as program:
        case.ops.attention(q, case.cache, step, scale=0.11, out=out, **options)
    for end, lowest in ((340, 0), (5, 0), (66, 62), (340, 300), (200, 100)):
        case.lowest = (lowest, 0)
        step.positions[:4], step.lowest[0] = range(end - 4, end), lowest
        out[:] = np.nan
        program.run()
        assert_same_bits(out, case.run(q, range(end - 4, end), [0] * 4, **options))


@pytest.mark.parametrize("ops", OP_SETS)
def test_wrong_arguments_are_refused(ops):
    ops, q = ops(), queries(10, 4, 32)
    cache, step = ops.kv_layer(4, 2, 32, "f16", 2), make_step(ops, [0] * 10, [0] * 10, 5, 2)
    options = {"scale": 1, "out": nans(*q.shape)}
    with pytest.raises(MismatchError, match="ring of 2 pages; expected 3"):
        ops.attention(q, cache, step, window=120, ahead=True, **options)
    with pytest.raises(MismatchError, match="sinks"):
        ops.attention(q, cache, step, window=9, sinks=np.zeros(2, np.float32), **options)
