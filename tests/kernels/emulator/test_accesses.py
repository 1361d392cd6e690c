"""Memory: bounds, alignment, poison, guards, and copies that come at the wait."""

import numpy as np
import pytest
from emulated import needs_emulator
from toy_kernels import SEEDS, THREADS, launch

from specrt.kernels.emulator import KernelError

pytestmark = needs_emulator


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
