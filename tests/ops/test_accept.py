"""accept: by equality with what the reference counts, and by cases counted by hand."""

import numpy as np
import pytest
from emulated import SEEDS, Recorder, needs_emulator, placed
from levels import LEVELS

from specrt._ext.host_ops import Tape
from specrt.errors import MismatchError
from specrt.host.accept import accept as host_accept
from specrt.kernels.accept import accept as kernel_accept
from specrt.reference.accept import accept
from specrt.state.step import StepInputs


def on_host(level):
    def run(ids, step, out):
        tape = Tape(level)
        host_accept(tape, ids, step, out=out)
        tape.run()

    return run


def emulated(seed):
    def run(ids, step, out):
        device = Recorder(seed)
        kernel_accept(device, ids, step, out=out)
        assert device.entries == ["accept"]

    return run


ALL = {"reference": lambda ids, step, out: accept(ids, step, out=out)}
ALL |= {level: on_host(number) for level, number in LEVELS.items()}
RUNS = [pytest.param(run, id=name) for name, run in ALL.items()]
RUNS += [pytest.param(emulated(seed), id=f"kernel {seed}", marks=needs_emulator) for seed in SEEDS]


def step_of(lengths, num_seqs, more_rows=3):
    """Windows of these many rows; what no window has is garbage."""
    num_rows = sum(lengths)
    step = StepInputs(num_rows + more_rows, num_seqs, 1, 0)
    step.block[:] = -7
    step.tokens[:num_rows] = np.arange(num_rows) + 100
    step.row_offsets[:] = num_rows
    step.row_offsets[: len(lengths)] = np.cumsum([0, *lengths])[:-1]
    for b, first in enumerate(np.cumsum([0, *lengths])[:-1]):
        step.positions[first : first + lengths[b]] = 1000 * b + np.arange(lengths[b])
    return step


def agreeing(step, num_rows):
    """Ids that agree with each next row's token; the last ones are 9."""
    return placed(np.array([*step.tokens[1:num_rows], 9], np.int32))


def outcomes(run, ids, step):
    out = placed(np.full((len(step.row_offsets) - 1, 3), 77, np.int32))
    run(ids, step, out)
    return out.tolist()


@pytest.mark.parametrize("run", RUNS)
def test_the_draft_counts_up_to_the_first_difference(run):
    step = step_of([4], 1)
    ids = agreeing(step, 4)
    assert outcomes(run, ids, step) == [[3, 9, 4]]
    ids[2] = 5
    assert outcomes(run, ids, step) == [[2, 5, 3]]
    ids[0] = 6
    assert outcomes(run, ids, step) == [[0, 6, 1]]
    step = step_of([1], 1)
    assert outcomes(run, agreeing(step, 1), step) == [[0, 9, 1]]


@pytest.mark.parametrize("run", RUNS)
def test_a_window_ends_where_the_next_begins_and_empty_ones_are_zeros(run):
    step = step_of([3, 0, 1, 2], 7)
    ids = agreeing(step, 6)  # the last row of a window agrees with the first of the next
    assert outcomes(run, ids, step) == [
        [2, 103, 3],
        [0, 0, 0],
        [0, 104, 2001],
        [1, 9, 3002],
        *[[0, 0, 0]] * 3,
    ]


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("length", [*range(1, 18), 31, 32, 33, 34, 64, 65])
def test_every_length_and_every_first_difference(run, length):
    step = step_of([2, length, 2], 3)
    for m in {0, 1, length // 2, 30, 31, 32, 33, length - 2, length - 1} & {*range(length)}:
        ids = agreeing(step, length + 4)
        ids[2 + m] = 5
        assert outcomes(run, ids, step)[1] == [m, 5, 1000 + m + 1]


@pytest.mark.parametrize("run", RUNS[1:])
@pytest.mark.parametrize("num_seqs", [1, 7, 8, 9, 21])
def test_many_windows_are_the_reference_s(run, num_seqs):
    rng = np.random.default_rng(num_seqs)
    lengths = rng.integers(0, 12, num_seqs).tolist()
    step = step_of(lengths, num_seqs + 2)
    ids = agreeing(step, max(1, sum(lengths)))
    ids[rng.random(len(ids)) < 0.2] = 5
    assert outcomes(run, ids, step) == outcomes(ALL["reference"], ids, step)


@pytest.mark.parametrize("launch", [host_accept, kernel_accept])
def test_wrong_arguments_are_refused(launch):
    step = step_of([4], 2)
    ids, out = np.zeros(4, np.int32), np.zeros((2, 3), np.int32)
    target = Tape(0) if launch is host_accept else Recorder()
    for wrong_ids, wrong_out in (
        (ids.astype(np.int64), out),
        (np.zeros(8, np.int32), out),
        (ids, out[:1]),
        (ids, np.zeros((2, 6), np.int32)[:, ::2]),
        (ids, out.astype(np.float32)),
    ):
        with pytest.raises(MismatchError, match="accept"):
            launch(target, wrong_ids, step, out=wrong_out)
