"""The emulator: right kernels give the same for each seed, and each seeded fault is caught."""

import ctypes
from pathlib import Path

import numpy as np
import pytest
from emulated import needs_emulator

from specrt.errors import UnsupportedError
from specrt.kernels.emulator import Emulator, KernelError
from specrt.kernels.emulator.build import load_library

pytestmark = needs_emulator

TOYS = Path(__file__).parent
THREADS = 96
SEEDS = range(6)


def launch(entry, *args, grid=1, shared=4 * THREADS, seed=0, block=THREADS):
    Emulator(seed, TOYS).launch("toys", entry, (grid,), block, args, shared)


def integers(n=THREADS):
    return np.random.default_rng(3).integers(-1000, 1000, n).astype(np.int32)


@pytest.mark.parametrize("seed", SEEDS)
def test_block_barriers(seed):
    x, out = integers(5 * THREADS), np.zeros(5 * THREADS, np.int32)
    launch("reverse", x, out, grid=5, seed=seed)
    assert (out.reshape(5, -1) == x.reshape(5, -1)[:, ::-1]).all()


def line_of(text):
    lines = (TOYS / "toys.cu").read_text().splitlines()
    return next(n for n, line in enumerate(lines, 1) if text in line)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_missing_block_barrier_names_both_lines(seed):
    x, out = integers(), np.zeros(THREADS, np.int32)
    write = line_of("store(shared + threadIdx.x, load(x + i))")
    read = line_of("load(shared + THREADS - 1 - threadIdx.x)")
    with pytest.raises(KernelError, match="no barrier between") as caught:
        launch("reverse_without_barrier", x, out, seed=seed)
    assert f"toys.cu:{write}" in str(caught.value) and f"toys.cu:{read}" in str(caught.value)


def test_a_missing_barrier_shows_in_the_values_too():
    """Without load and store nothing is noted: a thread that runs too early reads poison."""
    x = integers()
    for seed in SEEDS:
        out = np.zeros(THREADS, np.int32)
        launch("unchecked_without_barrier", x, out, seed=seed)
        wrong = out != x[::-1]
        assert wrong.any() and (out[wrong] == -1).all()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_buffer_written_while_it_is_read(seed):
    with pytest.raises(KernelError, match=r"no barrier between this \w+ of shared byte"):
        launch("reuse_without_barrier", integers(), np.zeros(THREADS, np.int32), seed=seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_warp_barriers_order_memory_and_shuffles_do_not(seed):
    x, out = integers(), np.zeros(THREADS, np.int32)
    launch("exchange", x, out, seed=seed)
    assert (out.reshape(3, 32) == x.reshape(3, 32)[:, ::-1]).all()
    with pytest.raises(KernelError, match="no barrier between"):
        launch("exchange_by_shuffle", x, out, seed=seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_one_warp_shuffles_another_waits_a_third_has_ended(seed):
    x, out = integers(), np.zeros(THREADS, np.int32)
    launch("warps_apart", x, out, seed=seed)
    assert (out[:64] == x[:32].sum()).all() and (out[64:] == 0).all()


@pytest.mark.parametrize("seed", SEEDS)
def test_shuffles_and_votes(seed):
    x, out = integers(), np.zeros(8 * THREADS, np.int32)
    launch("shuffles", x, out, seed=seed)
    warps, lane = x.reshape(3, 32), np.arange(32)
    within = lane % 8 + 3 < 8
    votes = ((warps & 1) << lane).sum(axis=1).astype(np.uint32).view(np.int32)
    expected = [
        warps[:, 5 + 0 * lane],
        warps[:, lane ^ 5],
        warps[:, np.where(lane + 3 < 32, lane + 3, lane)],
        warps[:, np.where(lane < 3, lane, lane - 3)],
        warps[:, lane // 8 * 8 + 2],
        warps[:, np.where(within, lane + 3, lane)],
        np.repeat(votes, 32).reshape(3, 32),
        np.where(lane < 16, warps[:, lane ^ 15], 0),
    ]
    for got, want in zip(out.reshape(8, 3, 32), expected, strict=True):
        assert (got == want).all()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("shuffle_from_outside_the_mask", "reads lane 20, which is not in mask"),
        ("shuffle_over_half_a_warp", "all threads wait: at"),
        ("shuffle_with_the_dead", "has ended"),
        ("different_barriers", "threads meet at different barriers"),
    ],
)
def test_threads_that_never_meet(entry, message, seed):
    with pytest.raises(KernelError, match=message) as caught:
        launch(entry, np.zeros(THREADS, np.int32), seed=seed)
    assert "toys.cu:" in str(caught.value)


def test_a_deadlock_names_every_line_where_threads_wait():
    shuffle = line_of("store(out + threadIdx.x, __shfl_xor_sync(0xffffffffu, 1, 1));")
    with pytest.raises(KernelError) as caught:
        launch("shuffle_over_half_a_warp", np.zeros(THREADS, np.int32))
    message = str(caught.value)
    assert f"toys.cu:{shuffle} (thread 0)" in message
    assert f"toys.cu:{shuffle + 1} (thread 16)" in message


def test_accesses_outside_of_arrays():
    x, out = np.zeros((2, 3 * THREADS), np.float32)
    for entry, args in (
        ("one_too_far", (x[:90], out[:90], np.int32(90))),
        ("one_too_far", (x[:95], out[:90], np.int32(90))),
        ("one_before", (x[1 : THREADS + 1], out)),
        ("wide", (x[:3], out)),
    ):
        with pytest.raises(KernelError, match=r"toys\.cu:\d+: \d+ bytes at .* outside"):
            launch(entry, *args)
    launch("one_too_far", x[:90], out[:90], np.int32(89))


def test_strided_arrays_reach_from_their_first_to_their_last_item():
    rows = np.zeros((4, 200), np.float32)
    launch("one_too_far", rows[1:3, 150:], rows, np.int32(89))
    backwards, out = np.zeros(8, np.float32)[::-1], np.zeros(8, np.float32)
    launch("one_too_far", backwards, out, np.int32(0))
    with pytest.raises(KernelError, match="outside"):
        launch("one_too_far", backwards, out, np.int32(1))
    with pytest.raises(KernelError, match="outside"):
        launch("one_before", None, rows)


def test_wide_accesses_are_aligned():
    memory = np.zeros(64, np.float32)
    x = memory[-memory.ctypes.data // 4 % 4 :]
    launch("wide", x[:4], x[16:])
    for args in ((x[1:], x[16:]), (x, x[18:])):
        with pytest.raises(KernelError, match="misaligned: 16 bytes"):
            launch("wide", *args)


def test_shared_memory_is_poisoned_and_guarded():
    out = np.zeros(THREADS, np.int32)
    launch("unwritten", out)
    assert (out == -1).all()
    launch("over_the_shared_block", out)
    with pytest.raises(KernelError, match="byte 380 of 380 of shared memory was written"):
        launch("over_the_shared_block", out, shared=4 * THREADS - 4)
    with pytest.raises(KernelError, match="outside of shared memory"):
        launch("unwritten", out, shared=4 * THREADS - 4)


@pytest.mark.parametrize("seed", SEEDS)
def test_cp_async_copies_at_the_wait(seed):
    memory = np.zeros(12 * THREADS + 3, np.float32)
    x = memory[-memory.ctypes.data // 4 % 4 :][: 12 * THREADS].reshape(3, -1)
    x[0] = np.arange(1, 4 * THREADS + 1)
    source, out, num = x[0], x[1:], 90
    expected = source.reshape(-1, 4) * (np.arange(THREADS) < num)[:, None]
    both = {"shared": 32 * THREADS, "seed": seed}
    launch("copy_async", source[: 4 * num], out, np.int32(num), **both)
    assert (out.reshape(2, -1, 4) == expected[::-1]).all()
    for entry in ("copy_async_one_pending", "copy_async_without_wait"):
        with pytest.raises(KernelError, match="no barrier between"):
            launch(entry, source, out, np.int32(num), **both)
    launch("copy_async_read_early", source, out, **both)
    assert np.isnan(out[0, : 4 * THREADS]).all()
    with pytest.raises(KernelError, match="never waited for"):
        launch("copy_async_left_behind", source, **both)
    with pytest.raises(KernelError, match="outside of shared memory"):
        launch("copy_async", source, out, np.int32(num), shared=32 * THREADS - 16)
    with pytest.raises(KernelError, match="misaligned"):
        launch("copy_async", source[1:], out, np.int32(num), **both)


def test_blocks_and_threads_come_in_the_order_of_the_seed():
    orders = set()
    for seed in SEEDS:
        sums, most = np.zeros(6, np.int32), np.zeros(1, np.uint64)
        launch("count", sums, most, grid=4, seed=seed)
        assert sums[0] == 4 * THREADS and most[0] == 4 * THREADS - 1
        assert sorted(sums[1:5]) == [0, 1, 2, 3]
        orders.add(tuple(sums[1:5]))
    assert len(orders) > 3


def test_dp4a():
    a, b = np.random.default_rng(1).integers(-128, 128, (2, THREADS, 4)).astype(np.int8)
    a[0] = b[0] = -128
    out = np.zeros(THREADS, np.int32)
    launch("dot", a.view(np.int32), b.view(np.int32), out)
    assert (out == (a.astype(np.int32) * b).sum(axis=1) - 7).all()


def test_conversions_round_to_even_and_saturate():
    x, out = np.zeros(THREADS, np.float32), np.zeros(THREADS, np.int32)
    x[:8] = 0.5, 1.5, -2.5, np.nan, 3e9, -3e9, np.inf, -(2.0**31)
    launch("convert", x, out)
    most = 2**31 - 1
    assert out[:8].tolist() == [0, 2, -2, 0, most, -most - 1, most, -most - 1]


@pytest.mark.parametrize("seed", SEEDS)
def test_products_of_matrices(seed):
    rng = np.random.default_rng(seed)
    a, b = rng.integers(-128, 128, (3, 16, 32)), rng.integers(-128, 128, (3, 32, 8))
    a[0, :3], b[0, :, 2:] = -128, -128
    c = rng.integers(-(2**30), 2**30, (3, 16, 8)).astype(np.int32)
    expected = c + 2 * (a @ b)
    columns = np.ascontiguousarray(b.transpose(0, 2, 1)).astype(np.int8)
    launch("product", a.astype(np.int8), columns, c, shared=3 * 512, seed=seed)
    assert (c == expected).all()


def test_products_take_whole_warps_and_aligned_rows():
    c = np.zeros(THREADS, np.int32)
    with pytest.raises(KernelError, match=r"has ended|all threads wait"):
        launch("product_of_half_a_warp", c)
    with pytest.raises(KernelError, match="misaligned"):
        launch("matrices_of_odd_rows", c, shared=4 * THREADS + 16)
    with pytest.raises(KernelError, match="ldmatrix reads 16 bytes"):
        launch("matrices_of_odd_rows", c, shared=0)


def test_arguments_have_the_types_of_the_parameters():
    right = (None, np.int32(1), np.uint32(2), np.int64(3), np.uint64(4), np.float32(5))
    out = np.zeros(1, np.float32)
    launch("typed", *right, out)
    assert out[0] == 15
    for place, wrong in ((1, np.int64(1)), (1, np.float32(1)), (2, np.int32(1)), (5, out)):
        args = [*right, out]
        args[place] = wrong
        with pytest.raises(KernelError, match="expected piulkfp"):
            launch("typed", *args)
    for wrong in (1, 1.0, np.float64(1), [1]):
        with pytest.raises(KernelError, match="argument 0 is a"):
            launch("typed", wrong, *right[1:], out)
    with pytest.raises(KernelError, match="arguments piulkf; expected piulkfp"):
        launch("typed", *right)


def test_launches_that_no_device_allows():
    out = np.zeros(THREADS, np.int32)
    for sizes, message in (
        ({"grid": 0}, "grid"),
        ({"block": 1025}, "1025 threads"),
        ({"block": 64}, "64 threads a block; expected its launch bound, 96"),
        ({"shared": 49153}, "49153 bytes"),
    ):
        with pytest.raises(KernelError, match=message):
            launch("unwritten", out, **sizes)


ENTRY = 'extern "C" __global__ void __launch_bounds__(32) entry(float *out)\n'


@pytest.mark.parametrize(
    "text",
    [
        ENTRY + "{ __shared__ float s[4]; store(out, s[0]); }",
        ENTRY + '{ asm volatile("" ::: "memory"); }',
        ENTRY + "{ store(out, expf(1.0f)); }",
        ENTRY + "{ atomicAdd(out, 1.0f); }",
        ENTRY + "{ __half h; }",
        'extern "C" __global__ void entry(float *out) { store(out, 1.0f); }',
    ],
)
def test_what_the_emulator_does_not_know_is_refused(tmp_path, text):
    (tmp_path / "unknown.cu").write_text('#include "device.cuh"\n' + text + "\n")
    with pytest.raises(UnsupportedError, match=r"unknown\.cu"):
        load_library("unknown", tmp_path)


def test_a_library_is_compiled_once_per_text(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    source = tmp_path / "k.cu"
    source.write_text('#include "device.cuh"\n' + ENTRY + "{ store(out, 1.0f); }\n")
    first = load_library("k", tmp_path)
    assert isinstance(first, ctypes.PyDLL)
    assert load_library("k", tmp_path)._name == first._name
    source.write_text(source.read_text().replace("1.0f", "2.0f"))
    assert load_library("k", tmp_path)._name != first._name
    out = np.zeros(1, np.float32)
    Emulator(0, tmp_path).launch("k", "entry", (1,), 32, (out,))
