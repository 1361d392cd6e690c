"""Threads that wait for each other: right kernels for each seed, and each fault by its lines."""

import numpy as np
import pytest
from emulated import needs_emulator
from toy_kernels import SEEDS, THREADS, integers, launch, line_of

from specrt.kernels.emulator import KernelError

pytestmark = needs_emulator


@pytest.mark.parametrize("seed", SEEDS)
def test_block_barriers(seed):
    x, out = integers(5 * THREADS), np.zeros(5 * THREADS, np.int32)
    launch("reverse", x, out, grid=5, seed=seed)
    assert (out.reshape(5, -1) == x.reshape(5, -1)[:, ::-1]).all()


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
def test_barriers_of_parts_of_a_warp(seed):
    x, out = integers(), np.zeros(THREADS, np.int32)
    launch("exchange_in_parts", x, out, np.int32(0), seed=seed)
    expected = x.reshape(3, 32).copy()
    for lanes in (8, 16):
        expected[:, :lanes] += expected[:, :lanes][:, ::-1].copy()
    assert (out.reshape(3, 32) == expected).all()
    for faults in (1, 2, 4):
        with pytest.raises(KernelError, match=r"no barrier between .* toys\.cu"):
            launch("exchange_in_parts", x, out, np.int32(faults), seed=seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_order_is_handed_on_from_one_part_to_another(seed):
    out = np.zeros(1, np.int32)
    launch("handed_on", out, np.int32(1), seed=seed)
    assert out[0] == 5
    failed = 0
    for other in range(8):
        try:
            launch("handed_on", out, np.int32(0), seed=100 * seed + other)
        except KernelError as error:
            failed += "no barrier between" in str(error)
    assert failed  # lane 3 may read before lane 0 writes, and is then told by nothing but its value


@pytest.mark.parametrize("seed", SEEDS)
def test_threads_that_have_ended_are_not_waited_for(seed):
    x, out = integers(), np.zeros(THREADS, np.int32)
    launch("sync_with_the_dead", x, out, seed=seed)
    halves = x.reshape(3, 32)[:, 15::-1]
    assert (out.reshape(3, 32)[:, :16] == halves).all() and not out.reshape(3, 32)[:, 16:].any()


@pytest.mark.parametrize(
    ("entry", "block", "message"),
    [
        ("spin", THREADS, "16777216 accesses without meeting other threads: it spins"),
        ("spin_on_a_lock", THREADS, "16777216 accesses without meeting other threads: it spins"),
        ("spin_at_a_barrier", 32, "1048576 barriers and warp operations of one thread: it spins"),
    ],
)
def test_threads_that_spin_fail(entry, block, message):
    with pytest.raises(KernelError, match=rf"toys\.cu:\d+: {message}"):
        launch(entry, np.zeros(1, np.int32), block=block)


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


def test_blocks_and_threads_come_in_the_order_of_the_seed():
    orders = set()
    for seed in SEEDS:
        sums, most = np.zeros(6, np.int32), np.zeros(1, np.uint64)
        launch("count", sums, most, grid=4, seed=seed)
        assert sums[0] == 4 * THREADS and most[0] == 4 * THREADS - 1
        assert sorted(sums[1:5]) == [0, 1, 2, 3]
        orders.add(tuple(sums[1:5]))
    assert len(orders) > 3
