"""copy: by equality."""

import numpy as np
import pytest
from emulated import SEEDS, Recorder, needs_emulator, placed
from levels import LEVELS

from specrt._ext.host_ops import Tape
from specrt.errors import MismatchError
from specrt.host.copy import copy as host_copy
from specrt.kernels.copy import copy as kernel_copy
from specrt.reference.copy import copy


@pytest.mark.parametrize("level", LEVELS.values(), ids=LEVELS)
@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.uint8])
def test_rows_are_copied_and_nothing_else(level, dtype):
    rng = np.random.default_rng(1)
    x = rng.integers(0, 200, (9, 77)).astype(dtype)
    expected, got = np.full((2, 12, 231), 201, dtype)
    copy(x, out=expected[:9, 77:154])
    tape = Tape(level)
    host_copy(tape, x, out=got[:9, 77:154])
    tape.run()
    assert (got == expected).all() and (got[:9, 77:154] == x).all()
    assert (got[9:] == 201).all() and (got[:, :77] == 201).all() and (got[:, 154:] == 201).all()


def test_wrong_arguments_are_refused():
    x = np.zeros((3, 8), np.float32)
    for out in (x[:2], x.astype(np.float64), np.zeros((3, 16), np.float32)[:, ::2], x[0]):
        with pytest.raises(MismatchError, match="copy"):
            host_copy(Tape(0), x, out=out)


@needs_emulator
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.uint8])
@pytest.mark.parametrize(
    ("width", "pitch", "offset"),
    [(1, 5, 0), (77, 231, 77), (80, 240, 80), (80, 240, 76), (1300, 1312, 3), (4112, 4128, 16)],
)
def test_the_kernel_copies_rows_and_nothing_else(dtype, width, pitch, offset, seed):
    rng = np.random.default_rng(seed)
    x = placed(rng.integers(0, 200, (9, width)).astype(dtype))
    got = placed(np.full((12, pitch), 201, dtype))
    end = offset + width
    device = Recorder(seed)
    kernel_copy(device, x, out=got[:9, offset:end])
    assert (got[:9, offset:end] == x).all()
    assert (got[9:] == 201).all() and (got[:, :offset] == 201).all() and (got[:, end:] == 201).all()
    size = x.itemsize
    fits = [not any(n * size % item for n in (width, pitch, offset)) for item in (16, 4, 1)]
    assert device.entries == [f"copy_{(16, 4, 1)[fits.index(True)]}"]


@needs_emulator
def test_the_kernel_copies_strided_rows_and_none():
    memory = np.random.default_rng(2).standard_normal((9, 40), dtype=np.float32)
    for x in (memory[::2, 3:19], memory[::-1, :16], memory[4:5, :7]):
        out = np.full(x.shape, np.nan, np.float32)
        kernel_copy(Recorder(), x, out=out)
        assert (out == x).all()
    device = Recorder()
    kernel_copy(device, memory[:0], out=memory[:0])
    assert device.entries == []


def test_the_kernel_refuses_wrong_arguments():
    x = np.zeros((3, 8), np.float32)
    for out in (x[:2], x.astype(np.float64), np.zeros((3, 16), np.float32)[:, ::2], x[0]):
        with pytest.raises(MismatchError, match="copy"):
            kernel_copy(Recorder(), x, out=out)
