"""rope_kv and attention of the CUDA op set together: what a step leaves and what is not seen."""

from importlib import import_module

import numpy as np
import pytest
from accuracy import assert_accurate
from emulated import SEEDS, Recorder, broken, needs_emulator, placed
from kernel_kv import KernelKVOps
from kv_data import fill, garbage_layer, make_step, pages_of
from ops.rows import assert_same_bits, nans

from specrt.errors import MismatchError, UnsupportedError
from specrt.kernels.attention import WARPS, _most_queries
from specrt.kernels.emulator import Emulator
from specrt.kernels.kv import MOST_DIMS, KernelKVLayer
from specrt.ops import Rope
from specrt.reference.kv import decode

HEADS, KV_HEADS, DIMS, CONTEXT = 3, 1, 32, 256

pytestmark = needs_emulator


class Model:
    """One layer over two sequences: rows of fixed values per (sequence, position)."""

    def __init__(self, ops, kv_type, window, ring_pages):
        self.ops, self.window, self.ring_pages = ops, window, ring_pages
        num_pages = 2 * (ring_pages or CONTEXT // 64)
        self.cache = garbage_layer(ops, num_pages, KV_HEADS, DIMS, kv_type, ring_pages)
        rng = np.random.default_rng(8)
        self.q = rng.standard_normal((2, CONTEXT, HEADS * DIMS), dtype=np.float32)
        self.k, self.v = rng.standard_normal((2, 2, CONTEXT, KV_HEADS * DIMS), dtype=np.float32)
        angle = np.arange(CONTEXT)[:, None] * 100.0 ** -(np.arange(8) / 8)
        table = np.stack([np.cos(angle), np.sin(angle)], -1).astype(np.float32)
        self.rope = Rope(placed(table), "neox")

    def run(self, positions, seqs):
        """The attention of these rows, behind their storing."""
        step = make_step(self.ops, [*positions, 0], [*seqs, 1], CONTEXT // 64, self.ring_pages)
        q, k, v = (placed(x[seqs, positions]) for x in (self.q, self.k, self.v))
        self.ops.rope_kv(q, k, v, self.cache, step, rope=self.rope)
        out = placed(nans(*q.shape))
        self.ops.attention(q, self.cache, step, scale=0.3, window=self.window, out=out)
        return out


@pytest.mark.parametrize(("kv_type", "window", "ring_pages"), [("f32", 0, 0), ("q8_0", 50, 4)])
def test_a_prompt_in_any_chunks_gives_the_same_bits(kv_type, window, ring_pages):
    prompt = list(range(170))
    model = Model(KernelKVOps(), kv_type, window, ring_pages)
    whole = np.concatenate(
        [model.run(prompt[a:b], [0] * (b - a)) for a, b in ((0, 128), (128, 170))]
    )
    assert np.isfinite(whole).all()
    for seed, size in ((1, 61), (2, 17), (3, 1)):
        model = Model(KernelKVOps(seed), kv_type, window, ring_pages)
        for start in range(0, 170, size):
            rows = prompt[start : start + size]
            assert_same_bits(model.run(rows, [0] * len(rows)), whole[rows])
    model = Model(KernelKVOps(), kv_type, window, ring_pages)  # beside another sequence
    for start in range(0, 170, 10):
        positions = [*range(start, start + 10), *range(start // 2, start // 2 + 5)]
        got = model.run(positions, [0] * 10 + [1] * 5)
        assert_same_bits(got[:10], whole[start : start + 10])


def nan_case(ops, kv_type, ring_pages, clean):
    """Two sequences whose caches are NaN wherever no row of theirs sees, or clean there."""
    cache = garbage_layer(ops, 2 * (ring_pages or 5), 2, 64, kv_type, ring_pages)
    for array in (cache.k_scale, cache.v_scale) if kv_type == "q8_0" else (cache.k, cache.v):
        array[:] = 0 if clean else np.nan
    positions, seqs = [259, 260, 261, 130], [0, 0, 0, 1]
    step = make_step(ops, positions, seqs, 5, ring_pages)
    rng = np.random.default_rng(3)
    for seq, seen in ((0, range(200, 262)), (1, range(71, 131))):
        fill(ops, cache, step, seq, seen, rng)
    q, out = placed(rng.standard_normal((4, 6 * 64), dtype=np.float32)), placed(nans(4, 6 * 64))
    ops.attention(q, cache, step, scale=0.3, window=60, out=out)
    return out


@pytest.mark.parametrize("kv_type", ["f32", "f16", "q8_0"])
@pytest.mark.parametrize("ring_pages", [0, 2, 3])
def test_nothing_that_is_hidden_is_seen(kv_type, ring_pages):
    expected = nan_case(KernelKVOps(), kv_type, ring_pages, clean=True)
    assert np.isfinite(expected).all()
    for seed in SEEDS[1:]:
        ops = KernelKVOps(seed, split=seed % 2)
        assert_same_bits(nan_case(ops, kv_type, ring_pages, clean=False), expected)


@pytest.mark.parametrize("kv_type", ["f32", "f16", "q8_0"])
def test_groups_of_chunks_change_nothing(kv_type, monkeypatch):
    ops = KernelKVOps(split=False)
    cache = garbage_layer(ops, 7, 2, 64, kv_type)
    step = make_step(ops, [1, 130, 131, 400], [0] * 4, 7)
    fill(ops, cache, step, 0, range(401), np.random.default_rng(1))
    q = placed(np.random.default_rng(2).standard_normal((4, 6 * 64), dtype=np.float32))

    def run():
        out = placed(nans(*q.shape))
        ops.attention(q, cache, step, scale=0.3, window=0, out=out)
        return out

    whole = run()
    ops.split = True
    for blocks in (4, 6, 8, 12, 1024):  # two KV heads: groups of 2, 3, 4, 6 and 7
        monkeypatch.setattr(import_module("specrt.kernels.attention"), "SPLIT_BLOCKS", blocks)
        assert_same_bits(run(), whole)


def long_case(ops, kv_type, length, window, positions, seqs):
    """Rows of two sequences that are that long; the caches hold what the generator gives."""
    num_pages = -(-length // 64)
    cache = garbage_layer(ops, 2 * num_pages, 1, 32, kv_type)
    step = make_step(ops, [*positions, 0], [*seqs, 1], num_pages)
    rng = np.random.default_rng(4)
    stored = [fill(ops, cache, step, seq, range(length), rng) for seq in (0, 1)]
    q = placed(np.random.default_rng(5).standard_normal((len(seqs), 3 * 32), dtype=np.float32))

    def run(rows=slice(None)):
        step.positions[: len(q[rows])], step.row_seqs[: len(q[rows])] = positions[rows], seqs[rows]
        out = placed(nans(*q[rows].shape))
        ops.attention(placed(q[rows]), cache, step, scale=0.3, window=window, out=out)
        return out

    return run, q, stored


@pytest.mark.parametrize("kv_type", ["f32", "f16", "q8_0"])
@pytest.mark.parametrize("window", [0, 300])
def test_long_rows_are_merged_span_by_span(kv_type, window, tmp_path, monkeypatch):
    """With two spans a row instead of 128, rows of one tile have spans of 1, 2, 4 and 8 chunks."""
    device = broken(tmp_path, "attention.cuh", "#define SPANS 128", "#define SPANS 2")
    ops = KernelKVOps(device=device, split=False)
    positions, seqs = np.array([100, 128, 255, 256, 511, 512, 700, 90]), np.array([0] * 7 + [1])
    run, q, stored = long_case(ops, kv_type, 701, window, positions, seqs)
    whole = run()
    ops.split = True
    for blocks in (2, 3, 1024):
        monkeypatch.setattr(import_module("specrt.kernels.attention"), "SPLIT_BLOCKS", blocks)
        assert_same_bits(run(), whole)
    for row in range(8):
        assert_same_bits(run(slice(row, row + 1)), whole[[row]])
    check_against_oracle(whole, q, stored, kv_type, window, positions, seqs)


def test_a_row_that_sees_more_chunks_than_spans():
    ops = KernelKVOps(split=False)
    positions, seqs = np.array([8190, 8191, 8192, 8299]), np.array([0] * 4)
    run, q, stored = long_case(ops, "f16", 8300, 0, positions, seqs)
    whole = run()
    ops.split = True
    assert_same_bits(run(), whole)
    check_against_oracle(whole, q, stored, "f16", 0, positions, seqs)


def check_against_oracle(got, q, stored, kv_type, window, positions, seqs):
    """Within the bounds of float64 attention and of the same in float32."""
    results = []
    for dtype in (np.float32, np.float64):
        rows = []
        for row, position, seq in zip(q, positions, seqs, strict=True):
            first = max(0, position - window + 1) if window else 0
            k, v = (decode(x, kv_type)[first : position + 1, 0].astype(dtype) for x in stored[seq])
            s = row.reshape(3, 32).astype(dtype) @ k.T * dtype(np.float32(0.3))
            p = np.exp(s - s.max(-1, keepdims=True))
            rows.append((p @ v / p.sum(-1, keepdims=True)).reshape(-1))
        results.append(np.array(rows))
    assert_accurate(got, *results)


class Replaying(Recorder):
    """Keeps what was launched, as a graph does."""

    def __init__(self):
        super().__init__()
        self.launches = []

    def launch(self, *arguments):
        """Note and run it."""
        self.launches.append(arguments)
        super().launch(*arguments)

    def replay(self):
        """Run it again."""
        for arguments in self.launches:
            super().launch(*arguments)


def test_launches_are_replayed_with_other_step_values():
    ops = KernelKVOps(device=Replaying())
    cache = garbage_layer(ops, 2 * 3, KV_HEADS, DIMS, "f16", 3)
    step = make_step(ops, [0, 1, 2, 0], [0, 0, 0, 1], CONTEXT // 64, 3)
    model = Model(KernelKVOps(), "f16", 70, 3)
    q, k, v, out = (placed(nans(4, heads * DIMS)) for heads in (HEADS, 1, 1, HEADS))
    ops.rope_kv(q, k, v, cache, step, rope=model.rope)
    ops.attention(q, cache, step, scale=0.3, window=70, out=out)
    lengths = np.array([0, 0])
    for turn in range(60):
        seqs = np.array([0, 0, 1, 1] if turn >= 30 else [0] * 4)
        positions = lengths[seqs] + [0, 1, *([0, 1] if turn >= 30 else [2, 3])]
        np.add.at(lengths, seqs, 1)
        step.positions[:], step.row_seqs[:] = positions, seqs
        for array, values in ((q, model.q), (k, model.k), (v, model.v)):
            array[:] = values[seqs, positions]
        ops.device.replay()
        expected = model.run(positions.tolist(), seqs.tolist())
        assert_same_bits(out, expected)


def test_what_the_kernels_do_not_take_is_refused():
    ops = KernelKVOps()
    for dims in (33, 514, 1024):
        with pytest.raises(UnsupportedError, match=f"{dims} dims; .* even numbers up to 512"):
            ops.kv_layer(1, 1, dims, "f16", 0)
    cache, step = ops.kv_layer(2, 1, 32, "f16", 0), make_step(ops, [0], [0], 2)
    q = placed(np.zeros((1, 32), np.float32), offset=4)
    with pytest.raises(MismatchError, match="16 bytes"):
        ops.attention(q, cache, step, scale=1, window=0, out=placed(q))


def test_saved_rows_lie_where_pages_say():
    ops = KernelKVOps()
    cache, step = garbage_layer(ops, 8, 2, 32, "q8_0"), make_step(ops, [0, 0], [0, 1], 4)
    pair = fill(ops, cache, step, 1, range(100, 140), np.random.default_rng(0))
    positions = np.arange(100, 140)
    got = ops.kv_read(cache, pages_of(cache, step, 1, positions), positions)
    assert (np.array(got) == np.array(pair)).all()
    slot = (step.page_table[1, 1], 0, 101 % 64)
    codes = np.ascontiguousarray(pair[0][1, 0, 0, 2:]).view(np.int8)
    assert (cache.k[slot][:32] == codes).all()


@pytest.mark.parametrize("kv_type", ["f32", "f16", "q8_0"])
def test_queries_of_the_widest_heads_fit_a_block(kv_type):
    cache = KernelKVLayer(1, 2, MOST_DIMS, kv_type, 0, Emulator().zeros)
    assert _most_queries(cache) >= WARPS
