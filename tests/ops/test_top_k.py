"""top_k: by equality, with ties, NaN and infinities at every rank."""

import numpy as np
import pytest
from emulated import SEEDS, needs_emulator, placed
from levels import LEVELS
from rows import assert_same_bits, nans

from specrt._ext.host_ops import Tape
from specrt.errors import MismatchError
from specrt.host.top_k import top_k as host_top_k
from specrt.kernels.emulator import Emulator
from specrt.kernels.top_k import top_k as kernel_top_k
from specrt.reference.top_k import top_k

SIZES = [(1, 1), (16, 5), (64, 64), (77, 64), (256, 9), (1031, 1), (3000, 40)]


def hostile_logits(num_rows, width, seed=0):
    """Rows with ties at every rank, NaN, both infinities and both zeros; the last all equal."""
    rng = np.random.default_rng([seed, num_rows, width])
    logits = rng.integers(-40, 40, (num_rows, width)).astype(np.float32) / 8
    logits[0] = rng.standard_normal(width)
    logits[:, rng.integers(0, width, 9)] = np.nan
    logits[1 % num_rows, rng.integers(0, width, 3)] = np.inf
    logits[2 % num_rows, : width // 2] = -np.inf
    logits[3 % num_rows, ::3] = -0.0
    logits[-1] = 2.5
    return logits


def check(run, logits, k):
    shape = len(logits), k
    expected_ids, ids = np.zeros(shape, np.int32), placed(np.full(shape, -7, np.int32))
    expected, values = nans(*shape), placed(nans(*shape))
    top_k(logits, ids=expected_ids, values=expected)
    run(logits, ids, values)
    assert_same_bits(ids, expected_ids)
    assert_same_bits(values, expected)


@pytest.mark.parametrize(("width", "k"), SIZES)
@pytest.mark.parametrize("level", LEVELS.values(), ids=LEVELS)
def test_host_equals_reference(level, width, k):
    def run(logits, ids, values):
        tape = Tape(level)
        host_top_k(tape, logits, ids=ids, values=values)
        tape.run()

    for seed in range(3):
        check(run, hostile_logits(5, width, seed), k)
    check(run, np.sort(hostile_logits(5, width), axis=1), k)
    check(run, np.full((2, width), np.nan, np.float32), k)


@needs_emulator
@pytest.mark.parametrize(("width", "k"), SIZES)
@pytest.mark.parametrize("seed", SEEDS)
def test_the_kernel_equals_the_reference(width, k, seed):
    check(
        lambda logits, ids, values: kernel_top_k(Emulator(seed), logits, ids=ids, values=values),
        placed(hostile_logits(5, width, seed)),
        k,
    )


def test_the_best_come_first_and_equal_ones_by_their_ids():
    ids, values = np.zeros((1, 4), np.int32), nans(1, 4)
    top_k(np.array([[1, np.nan, 3, 1, -np.inf, 3]], np.float32), ids=ids, values=values)
    assert (ids.tolist(), values.tolist()) == ([[2, 5, 0, 3]], [[3, 3, 1, 1]])


@pytest.mark.parametrize("launch", [host_top_k, kernel_top_k])
def test_wrong_arguments_are_refused(launch):
    for width, k in ((9, 10), (100, 65), (9, 0)):
        with pytest.raises(MismatchError, match=f"top_k: {k} of {width}"):
            launch(None, nans(2, width), ids=np.zeros((2, k), np.int32), values=nans(2, k))
    with pytest.raises(MismatchError, match="top_k: values"):
        launch(None, nans(2, 9), ids=np.zeros((2, 3), np.int32), values=nans(2, 4))
