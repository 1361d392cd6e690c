"""select: by equality."""

import numpy as np
import pytest
from emulated import SEEDS, Recorder, needs_emulator, placed
from levels import LEVELS

from specrt._ext.host_ops import Tape
from specrt.errors import MismatchError
from specrt.host.select import select as host_select
from specrt.kernels.select import select as kernel_select
from specrt.reference.select import select

INDEX = np.array([8, 0, -1, 3, 3, 9, 2**31 - 1, -(2**31), 5], np.int32)
CHOSEN = [8, 0, None, 3, 3, None, None, None, 5]


def on_host(level):
    def run(x, index, out):
        tape = Tape(level)
        host_select(tape, x, index, out=out)
        tape.run()

    return run


ALL = {"reference": lambda x, index, out: select(x, index, out=out)}
ALL |= {name: on_host(level) for name, level in LEVELS.items()}


def check(run, x, out, memory):
    """Rows are chosen, out of range zeros, and the memory around is as it was."""
    before = memory.copy()
    run(x, INDEX, out)
    for row, chosen in zip(out, CHOSEN, strict=True):
        expected = np.zeros_like(row) if chosen is None else x[chosen]
        assert row.tobytes() == expected.tobytes()
    out[:] = before[0, 0]
    assert (memory == before).all()


@pytest.mark.parametrize("run", ALL.values(), ids=ALL)
@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.float16, np.uint8])
def test_rows_are_chosen_and_nothing_else_is_written(run, dtype):
    x = np.random.default_rng(1).integers(0, 200, (9, 77)).astype(dtype)
    memory = np.full((12, 231), 201, dtype)
    check(run, x, memory[:9, 77:154], memory)
    check(run, np.ascontiguousarray(x[:, ::-1])[::-1], memory[1:10, :77], memory)


@pytest.mark.parametrize("run", ALL.values(), ids=ALL)
def test_bits_that_are_no_number_are_kept(run):
    x = np.array([[0x7FA00001], [0x80000001], [0xFF800001]], np.uint32).view(np.float32)
    out = np.zeros((3, 1), np.float32)
    run(x, np.array([2, 1, 0], np.int32), out)
    assert out.tobytes() == x[::-1].tobytes()


@needs_emulator
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.uint8])
@pytest.mark.parametrize(
    ("width", "pitch", "offset"),
    [(1, 5, 0), (77, 231, 77), (80, 240, 80), (80, 240, 76), (1300, 1312, 3), (4112, 4128, 16)],
)
def test_the_kernel_chooses_rows_and_writes_nothing_else(dtype, width, pitch, offset, seed):
    x = placed(np.random.default_rng(seed).integers(0, 200, (9, width)).astype(dtype))
    memory = placed(np.full((12, pitch), 201, dtype))
    device = Recorder(seed)

    def run(x, index, out):
        kernel_select(device, x, placed(index), out=out)

    check(run, x, memory[:9, offset : offset + width], memory)
    size = x.itemsize
    fits = [not any(n * size % item for n in (width, pitch, offset)) for item in (16, 4, 1)]
    assert device.entries == [f"select_{(16, 4, 1)[fits.index(True)]}"]


@needs_emulator
def test_the_kernel_takes_strided_rows_one_and_none():
    memory = np.random.default_rng(2).standard_normal((9, 40), dtype=np.float32)
    for x in (memory[::2, 3:19], memory[::-1, :16], memory[4:5, :7]):
        out = np.full((1, x.shape[1]), np.nan, np.float32)
        kernel_select(Recorder(), x, np.array([len(x) - 1], np.int32), out=out)
        assert (out == x[-1:]).all()
    device = Recorder()
    kernel_select(device, memory, np.zeros(0, np.int32), out=memory[:0])
    assert device.entries == []
    kernel_select(device, memory[:0, :7], np.zeros(1, np.int32), out=out)
    assert not out.any()


@pytest.mark.parametrize("launch", [host_select, kernel_select])
def test_wrong_arguments_are_refused(launch):
    x, index, out = np.zeros((3, 8), np.float32), np.zeros(2, np.int32), np.zeros((2, 8), "f")
    target = Tape(0) if launch is host_select else Recorder()
    for wrong in (
        (x, index[:1], out),
        (x, index.astype(np.int64), out),
        (x, index, out.astype(np.float64)),
        (x[:, ::2], index, out[:, :4]),
        (x[:, :7], index, out),
        (x[0], index, out),
        (x, index, out[0]),
    ):
        with pytest.raises(MismatchError, match="select"):
            launch(target, *wrong[:2], out=wrong[2])
