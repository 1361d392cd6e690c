"""causal_conv: a float64 oracle, every form the same bits, and windows that are taken back."""

from functools import partial

import numpy as np
import pytest
from accuracy import assert_accurate
from emulated import SEEDS, needs_emulator
from levels import LEVELS
from recurrent_data import SHAPES, garbage, random_rows, random_windows, step_of
from rows import assert_same_bits, nans

from specrt._ext.host_ops import Tape
from specrt.errors import MismatchError
from specrt.host.causal_conv import causal_conv as host_causal_conv
from specrt.kernels.causal_conv import causal_conv as kernel_causal_conv
from specrt.kernels.emulator import Emulator
from specrt.reference.causal_conv import causal_conv
from specrt.state.recurrent import MAX_CONV, MOST_KEPT, RecurrentShape
from specrt.state.sequence import Cursor


def on_host(level):
    def run(*args, **keywords):
        tape = Tape(level)
        host_causal_conv(tape, *args, **keywords)
        tape.run()

    return run


FORMS = {"reference": causal_conv} | {name: on_host(level) for name, level in LEVELS.items()}
ALL_FORMS = [
    *(pytest.param(form, id=name) for name, form in FORMS.items()),
    pytest.param(partial(kernel_causal_conv, Emulator(1)), id="kernel", marks=needs_emulator),
]


def oracle(u, weight):
    kernel = weight.shape[1]
    rows = np.concatenate([np.zeros((kernel - 1, u.shape[1])), u.astype(np.float64)])
    total = sum(weight[:, j] * rows[j : j + len(u)] for j in range(kernel))
    return total / (1 + np.exp(-total))


@pytest.mark.parametrize("num_rows", [1, 3, 65, 128])
@pytest.mark.parametrize("shape", [*SHAPES, RecurrentShape(1, 1, 8, 8, MAX_CONV)], ids=str)
def test_against_the_oracle(shape, num_rows):
    rows = random_rows(shape, num_rows)
    step, results = step_of([(0, Cursor(), num_rows)]), {}
    for name, form in FORMS.items():
        results[name] = nans(*rows.qkv.shape)
        form(rows.qkv, rows.weight, garbage(shape, 1), step, out=results[name])
        in_place = rows.qkv.copy()
        form(in_place, rows.weight, garbage(shape, 1), step, out=in_place)
        assert_same_bits(in_place, results[name])
    baseline, exact = results.pop("reference"), oracle(rows.qkv, rows.weight)
    first = next(iter(results.values()))
    for got in results.values():
        assert_accurate(got, baseline, exact)
        assert_same_bits(got, first)


@needs_emulator
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("num_rows", [1, 65, 70])
@pytest.mark.parametrize("shape", [*SHAPES, RecurrentShape(1, 1, 8, 8, MAX_CONV)], ids=str)
def test_the_kernel_has_the_bits_of_the_host(shape, num_rows, seed):
    """Rows and what is kept of them, in place."""
    rows, step = random_rows(shape, num_rows), step_of([(0, Cursor(), num_rows)])
    forms = on_host(0), partial(kernel_causal_conv, Emulator(seed))
    written = [(rows.qkv.copy(), garbage(shape, 1)) for _ in forms]
    for form, (u, layer) in zip(forms, written, strict=True):
        form(u, rows.weight, layer, step, out=u)
    (expected, kept), (got, layer) = written
    assert_same_bits(got, expected)
    np.testing.assert_array_equal(layer.tails, kept.tails)
    np.testing.assert_array_equal(layer.log_u, kept.log_u)


@pytest.mark.parametrize("form", ALL_FORMS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_what_is_taken_back_leaves_nothing(form, shape, seed):
    rng, total = np.random.default_rng(seed), 600
    text = random_rows(shape, total + 2 * MOST_KEPT, seed)
    right = nans(*text.qkv.shape)
    layer, cursor = garbage(shape, 1), Cursor()
    for row in range(total):
        step = step_of([(0, cursor, 1)])
        form(text.qkv[row : row + 1], text.weight, layer, step, out=right[row : row + 1])
        cursor = cursor.fed(1)
    layer, cursor = garbage(shape, 2), Cursor()
    for rows, kept in random_windows(rng, total):
        start = cursor.cache_len
        u, out = text.qkv[start : start + rows].copy(), nans(rows, shape.channels)
        u[kept:] = rng.standard_normal(u[kept:].shape)
        form(u, text.weight, layer, step_of([(1, cursor, rows)], 2), out=out)
        if kept:
            assert_same_bits(out[:kept], right[start : start + kept])
            cursor = cursor.fed(kept)


def test_wrong_arguments_are_refused():
    shape = SHAPES[0]
    rows, step = random_rows(shape, 3), step_of([(0, Cursor(), 3)])
    for u, weight in (
        (rows.qkv[:, 1:], rows.weight),
        (rows.qkv, rows.weight[:, :2]),
        (rows.qkv.astype(np.float64), rows.weight),
    ):
        for form in (on_host(0), partial(kernel_causal_conv, Emulator())):
            with pytest.raises(MismatchError, match="causal_conv"):
                form(u, weight, garbage(shape, 1), step, out=nans(*rows.qkv.shape))


@pytest.mark.parametrize("kernel", [0, MAX_CONV + 1])
def test_too_many_rows_for_one_are_refused(kernel):
    shape = RecurrentShape(1, 1, 8, 8, kernel)
    u, weight = nans(1, shape.channels), nans(shape.channels, kernel)
    layer = garbage(RecurrentShape(1, 1, 8, 8, 1), 1)
    layer.shape = shape
    with pytest.raises(MismatchError, match=f"{kernel} rows"):
        on_host(0)(u, weight, layer, step_of([(0, Cursor(), 1)]), out=u)
