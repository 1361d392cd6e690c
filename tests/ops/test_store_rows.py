"""store_rows: by equality."""

from functools import partial

import numpy as np
import pytest
from emulated import SEEDS, Recorder, needs_emulator, placed
from levels import LEVELS

from specrt._ext.host_ops import Tape
from specrt.errors import MismatchError
from specrt.host.store_rows import store_rows as host_store_rows
from specrt.kernels.store_rows import store_rows as kernel_store_rows
from specrt.reference.store_rows import store_rows
from specrt.state.step import StepInputs

SLOTS, RING, WIDTH = 3, 5, 37


def on_host(level):
    def run(x, step, out):
        tape = Tape(level)
        host_store_rows(tape, x, step, out=out)
        tape.run()

    return run


ALL = {"reference": lambda x, step, out: store_rows(x, step, out=out)}
ALL |= {name: on_host(level) for name, level in LEVELS.items()}


def two_sequences(buffer=np.zeros):
    """Rows 13 .. 16 of a sequence in slot 2, then row 0 of one in slot 0."""
    step = StepInputs(6, 2, 1, 0, buffer)
    step.positions[:5] = 13, 14, 15, 16, 0
    step.row_seqs[:5] = 0, 0, 0, 0, 1
    step.slots[:] = 2, 0
    return step


PLACES = [(2, 3), (2, 4), (2, 0), (2, 1), (0, 0)]


def rows(seed=0, width=WIDTH):
    x = np.random.default_rng(seed).standard_normal((5, width), dtype=np.float32)
    x[1, 3], x[2, 5] = np.nan, -0.0
    return x


def check(run, x, step, ring):
    """The rows lie in their places, and all others are as they were."""
    before = ring.copy()
    run(x, step, ring)
    for row, place in zip(x, PLACES, strict=True):
        assert ring[place].tobytes() == row.tobytes()
        ring[place] = before[place]
    assert ring.tobytes() == before.tobytes()


@pytest.mark.parametrize("run", ALL.values(), ids=ALL)
def test_rows_lie_by_slot_and_position_and_nothing_else_is_written(run):
    ring = np.full((SLOTS, RING, WIDTH), np.nan, np.float32)
    check(run, rows(), two_sequences(), ring)


@needs_emulator
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("width", "offset", "item"), [(37, 0, 4), (40, 0, 16), (40, 4, 4), (1300, 0, 16), (2051, 0, 4)]
)
def test_the_kernel_writes_rows_in_their_places_and_nothing_else(width, offset, item, seed):
    device = Recorder(seed)
    step = two_sequences(lambda shape, dtype: placed(np.zeros(shape, dtype)))
    ring = placed(np.full((SLOTS, RING, width), np.nan, np.float32), offset)
    run = partial(kernel_store_rows, device)
    check(lambda x, step, out: run(x, step, out=out), placed(rows(seed, width)), step, ring)
    assert device.entries == [f"store_rows_{item}"]


@needs_emulator
def test_the_kernel_takes_one_row_and_none():
    device, ring = Recorder(), np.zeros((SLOTS, RING, WIDTH), np.float32)
    kernel_store_rows(device, rows()[:0], two_sequences(), out=ring)
    assert device.entries == [] and not ring.any()
    kernel_store_rows(device, rows()[:1], two_sequences(), out=ring)
    assert ring[PLACES[0]].tobytes() == rows()[0].tobytes()


@pytest.mark.parametrize("launch", [host_store_rows, kernel_store_rows])
def test_wrong_arguments_are_refused(launch):
    x, step = rows(), two_sequences()
    out = np.zeros((SLOTS, RING, WIDTH), np.float32)
    target = Tape(0) if launch is host_store_rows else Recorder()
    for wrong in (
        (x, out[:, :, :-1].copy()),
        (x, out.astype(np.float64)),
        (x, out[:, ::2]),
        (x, out[:, :0]),
        (x[:, ::2], out),
        (np.zeros((7, WIDTH), np.float32), out),
    ):
        with pytest.raises(MismatchError, match="store_rows"):
            launch(target, wrong[0], step, out=wrong[1])
