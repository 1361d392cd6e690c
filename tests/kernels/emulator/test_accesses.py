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


def test_rows_of_a_strided_array_and_what_lies_between_them():
    rows = np.zeros((4, 200), np.float32)
    view, out = rows[1:3, 150:], np.zeros(90, np.float32)
    launch("one_too_far", view, out, np.int32(49))
    with pytest.raises(KernelError, match=r"byte 200 of argument 0, which has 1000, are outside"):
        launch("one_too_far", view, out, np.int32(50))
    for at in (196, 800, 996):
        launch("write_at", view, np.int64(at), np.int32(1))
    assert (np.argwhere(rows == 1) == [[1, 199], [2, 150], [2, 199]]).all()
    for at in (-4, 200, 796, 1000):
        with pytest.raises(KernelError, match="outside"):
            launch("write_at", view, np.int64(at), np.int32(1))


def test_backward_arrays_reach_from_their_last_to_their_first_item():
    backwards, out = np.zeros(8, np.float32)[::-1], np.zeros(8, np.float32)
    launch("one_too_far", backwards, out, np.int32(0))
    with pytest.raises(KernelError, match="outside"):
        launch("one_too_far", backwards, out, np.int32(1))
    with pytest.raises(KernelError, match="outside"):
        launch("one_before", None, out)


@pytest.mark.parametrize("checked", [0, 1])
def test_the_neighbour_of_an_array_is_out_of_reach(checked):
    """Views of one base, side by side: each of them alone is legal."""
    base = np.zeros((3, 32), np.float32)
    launch("shift", base[0], base[1], np.int32(32))
    for at in (-4, 128, 4 * (1 << 18)):
        if not checked and at > 128:
            continue  # nobody sees it, and it hits no array
        with pytest.raises(KernelError, match="was written" if not checked else "outside"):
            launch("write_at", base[1], np.int64(at), np.int32(checked))
    assert not base.any()
    with pytest.raises(KernelError, match="4 bytes at byte 128 of argument 0, which has 128"):
        launch("one_too_far", base[0], base[1:], np.int32(32))


def test_arrays_that_overlap_keep_doing_so():
    base = np.arange(100, dtype=np.float32)
    launch("shift", base[:90], base[10:], np.int32(90))
    assert (base == [*range(10), *range(90)]).all()
    launch("shift", base, base, np.int32(90))
    assert (base == [*range(10), *range(90)]).all()


def test_what_is_const_is_not_written():
    x = np.zeros(4, np.float32)
    with pytest.raises(KernelError, match="writes 4 bytes to argument 0, which is const"):
        launch("write_what_is_const", x)
    assert not x.any()


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
