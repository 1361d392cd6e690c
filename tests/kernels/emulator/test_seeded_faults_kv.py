"""Faults put into the kernels of keys and values: the emulator, or the values, tell each."""

import numpy as np
import pytest
from emulated import broken, needs_emulator, placed
from kernel_kv import KernelKVOps
from kv_data import fill, garbage_layer, make_step, pages_of
from ops.rows import assert_same_bits, nans

from specrt.kernels.emulator import Emulator, KernelError
from specrt.ops import Rope

pytestmark = needs_emulator

POSITIONS, SEQS = [198, 199, 200, 201, 68, 69], [0, 0, 0, 0, 1, 1]
WINDOW = 70


def run_attention(device, ring_pages=3):
    """Rows of two sequences over rings that wrapped. The first row's first key and the last row's
    last are NaN, which no other row of theirs sees."""
    ops = KernelKVOps(device=device)
    cache = garbage_layer(ops, 2 * ring_pages, 2, 64, "f16", ring_pages)
    step = make_step(ops, POSITIONS, SEQS, 5, ring_pages)
    rng = np.random.default_rng(6)
    for seq, end in enumerate((202, 70)):
        fill(ops, cache, step, seq, range(end), rng)
    hidden = np.array([198 - WINDOW + 1, 201])
    wrong = np.full((2, 2, 64), np.nan, np.float16)
    ops.kv_write(cache, pages_of(cache, step, 0, hidden), hidden, wrong, wrong)
    q = placed(rng.standard_normal((len(POSITIONS), 6 * 64), dtype=np.float32))
    outs = placed(nans(2, *q.shape))
    for ops.split, out in zip((True, False), outs, strict=True):  # cut along the keys, and not
        ops.attention(q, cache, step, scale=0.2, window=WINDOW, out=out)
    return outs


def run_block(device):
    """Blocks of two sequences with sinks; below position 100 the first has no keys."""
    ops = KernelKVOps(device=device)
    cache = garbage_layer(ops, 10, 2, 64, "f16")
    step = make_step(ops, [190, 191, 192, 193, 68, 69], SEQS, 5)
    step.row_offsets[:], step.lowest[:] = (0, 4, 6), (100, 0)
    rng = np.random.default_rng(6)
    for seq, (first, end) in enumerate(((100, 194), (0, 70))):
        fill(ops, cache, step, seq, range(first, end), rng)
    q = placed(rng.standard_normal((6, 6 * 64), dtype=np.float32))
    sinks = placed(np.float32([9, -1, 4, 0, 12, 2]))  # of which some exceed all scores
    outs = placed(nans(2, *q.shape))
    for ops.split, out in zip((True, False), outs, strict=True):
        options = {"window": 0, "ahead": True, "sinks": sinks}
        ops.attention(q, cache, step, scale=0.2, out=out, **options)
    return outs


def run_rope_kv(device, ring_pages=2):
    """What q becomes and what is stored, beside the whole cache."""
    ops = KernelKVOps(device=device)
    cache = garbage_layer(ops, 2 * ring_pages, 3, 64, "q8_0", ring_pages)
    step = make_step(ops, POSITIONS, SEQS, 5, ring_pages)
    rng = np.random.default_rng(7)
    q, k, v = (
        placed(rng.standard_normal((len(POSITIONS), heads * 64), dtype=np.float32))
        for heads in (4, 3, 3)
    )
    table = placed(rng.standard_normal((202, 20, 2), dtype=np.float32))
    norm = placed(np.linspace(1, 2, 64, dtype=np.float32))
    ops.rope_kv(q, k, v, cache, step, rope=Rope(table, "neox"), q_norm=norm, k_norm=norm, eps=1e-6)
    stored = [
        x.astype(np.float32).ravel() for x in (cache.k, cache.v, cache.k_scale, cache.v_scale)
    ]
    return np.concatenate([q.ravel(), k.ravel(), *stored])


RACES = {
    "attention: a removed barrier": ("attention.cu", "            __syncthreads();\n", ""),
    "attention: a slot that is still read": ("attention.cu", "at ? at - 1 : SLOTS - 1", "at"),
    "attention: copies that nobody waits for": (
        *("attention.cu", "cp_async_wait<SLOTS - 2>();", "cp_async_wait<SLOTS - 1>();"),
    ),
    "attention: a page beyond the table": ("kv.cuh", "chunk % step.ring_pages", "chunk + 60"),
    "rope_kv: a removed barrier": ("rope_kv.cu", "    __syncthreads();\n", ""),
    "rope_kv: a removed barrier of a warp": ("rope_kv.cu", "    __syncwarp();\n", ""),
    "rope_kv: a head that is none": ("rope_kv.cu", "head >= num_heads", "head > num_heads"),
}


@pytest.mark.parametrize("fault", RACES)
def test_the_emulator_tells(tmp_path, fault):
    device = broken(tmp_path, *RACES[fault])
    run = run_attention if fault.startswith("attention") else run_rope_kv
    with pytest.raises(KernelError, match=r"no barrier between|never waited for|outside of"):
        run(device)


VALUES = {
    "the last key is missed": ("attention_rows.cuh", "position) + 1 - start", "position) - start"),
    "a window too wide": ("attention.cuh", "position - window + 1", "position - window"),
    "hidden keys times zero": ("attention.cuh", "if (all || (", "if (true || ("),
    "hidden keys among four that are seen": ("attention.cuh", "key >= all_lo &&", "true &&"),
    "another page of the ring": (
        *("kv.cuh", "chunk % step.ring_pages", "(chunk + 1) % step.ring_pages"),
    ),
    "another sequence's table": ("kv.cuh", "static_cast<long long>(seq) *", "0 *"),
    "the page before": ("attention.cu", "feed.page = feed.next_page;", ""),
    "a chunk that no group takes": (
        "attention.cu",
        "(last - first + args.num_groups - 1)",
        "(last - first)",
    ),
}


@pytest.mark.parametrize("fault", VALUES)
def test_the_values_of_attention_are_wrong(tmp_path, fault):
    got = run_attention(broken(tmp_path, *VALUES[fault]))
    expected = run_attention(Emulator())
    assert_same_bits(expected[1], expected[0])
    assert np.isnan(expected[0]).all(axis=1).tolist() == [True, False, False, True, False, False]
    with pytest.raises(AssertionError, match="differ"):
        assert_same_bits(got, expected)


@pytest.mark.parametrize(
    ("file", "right", "wrong"),
    [
        ("attention_rows.cuh", "args.row_offsets ? behind", "false ? behind"),
        ("attention_rows.cuh", "row_offsets + seq + 1) - 1", "row_offsets + 1) - 1"),
        ("attention.cuh", "return seq ? load(lowest + seq) : first", "return first"),
        ("attention.cuh", "most(lowest, position - window + 1) : lowest", "0 : 0"),
        ("attention_merge.cuh", "row_offsets ? load", "false ? load"),
        ("attention_merge.cuh", "if (sinks)", "if (false)"),
        ("attention.cu", "% args.num_heads;", "% args.num_heads ^ 1;"),
        ("attention.cu", "args.sinks ? merged", "false ? merged"),
    ],
)
def test_the_values_of_a_block_are_wrong(tmp_path, file, right, wrong):
    expected = run_block(Emulator())
    assert np.isfinite(expected).all()
    assert_same_bits(expected[1], expected[0])
    got = run_block(broken(tmp_path, file, right, wrong))
    with pytest.raises(AssertionError, match="differ"):
        assert_same_bits(got, expected)


@pytest.mark.parametrize(
    ("file", "right", "wrong"),
    [
        ("rope_kv.cu", "position % PAGE) *", "(position + 1) % PAGE) *"),
        ("rope_kv.cu", "position / PAGE)", "position / PAGE + 1)"),
        ("rope_kv.cu", "flip = 4", "flip = 2"),
        ("rope_kv.cu", "dim / 32 * PAGE", "dim / 32"),
        ("kv.cuh", "static_cast<long long>(seq) *", "0 *"),
    ],
)
def test_the_values_of_rope_kv_are_wrong(tmp_path, file, right, wrong):
    expected = run_rope_kv(Emulator())
    got = run_rope_kv(broken(tmp_path, file, right, wrong))
    with pytest.raises(AssertionError, match="differ"):
        assert_same_bits(got, expected)
