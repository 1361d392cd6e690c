"""rms_norm: host and kernel against a float64 oracle, every form of each the same bits."""

from functools import partial
from itertools import product

import numpy as np
import pytest
from accuracy import assert_accurate
from emulated import SEEDS, Recorder, needs_emulator, placed
from levels import LEVELS
from rows import PREPARED, assert_prepared, assert_same_bits, empty_acts, nans

from specrt._ext.host_ops import Tape
from specrt.acts import Int8Rows
from specrt.errors import MismatchError
from specrt.host.acts import HostInt8Rows
from specrt.host.rms_norm import rms_norm as host_rms_norm
from specrt.kernels.rms_norm import rms_norm as kernel_rms_norm
from specrt.reference.rms_norm import rms_norm

WIDTHS = (1, 15, 64, 333, 576)


def inputs(num_rows, width):
    rng = np.random.default_rng([num_rows, width])
    x, add = rng.standard_normal((2, num_rows, width), dtype=np.float32)
    x[:, width // 2] *= 50
    return x, rng.standard_normal(width, dtype=np.float32), add


def run(level, x, weight, eps, add=None, out=None):
    out = nans(*x.shape) if out is None else out
    tape = Tape(level)
    host_rms_norm(tape, x, weight, eps, out=out, add=add)
    tape.run()
    return out


def oracle(x, weight, eps, add):
    x = x.astype(np.float64)
    y = x / np.sqrt((x * x).mean(axis=1, keepdims=True) + np.float64(np.float32(eps)))
    y = y if weight is None else y * weight
    return y if add is None else y + add


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("form", ["plain", "weight", "weight and add"])
def test_against_the_oracle(width, form):
    x, weight, add = inputs(5, width)
    weight = None if form == "plain" else weight
    add = add if "add" in form else None
    exact, baseline = oracle(x, weight, 1e-5, add), nans(5, width)
    rms_norm(x, weight, 1e-5, out=baseline, add=add)
    assert_accurate(baseline, baseline, exact)
    results = [run(level, x, weight, 1e-5, add) for level in LEVELS.values()]
    for got in results:
        assert_accurate(got, baseline, exact)
        assert_same_bits(got, results[0])


@pytest.mark.parametrize("level", LEVELS.values(), ids=LEVELS)
def test_rows_stand_alone_and_outputs_may_be_inputs(level):
    x, weight, add = inputs(65, 333)
    whole = run(level, x, weight, 1e-6, add)
    for num_rows in (*range(1, 18), 33):
        got = run(level, x[:num_rows], weight, 1e-6, add[:num_rows])
        assert_same_bits(got, whole[:num_rows])
    assert_same_bits(run(level, x[40:41], weight, 1e-6, add[40:41]), whole[40:41])
    copy = x.copy()
    assert_same_bits(run(level, copy, weight, 1e-6, add, out=copy), whole)
    copy = add.copy()
    assert_same_bits(run(level, x, weight, 1e-6, copy, out=copy), whole)


@pytest.mark.parametrize("level", LEVELS.values(), ids=LEVELS)
def test_zeros_and_nans(level):
    x = np.zeros((3, 40), np.float32)
    x[1, 3] = np.nan
    got = run(level, x, None, 1e-6)
    assert (got[[0, 2]] == 0).all() and np.isnan(got[1]).all()


def test_wrong_arguments_are_refused():
    x, weight, add = inputs(2, 64)
    for arguments in (
        (x[:, ::2], weight[:32], None),
        (x, weight[:63], None),
        (x, weight, add[:1]),
        (x.astype(np.float64), weight, None),
    ):
        with pytest.raises(MismatchError, match="rms_norm"):
            run(0, arguments[0], arguments[1], 1e-5, arguments[2], out=nans(*x.shape))


def emulate(x, weight, eps, add=None, seed=0, offset=0):
    """What the kernel writes, and its entry; all arrays start behind a multiple of 64."""
    out = placed(nans(*x.shape), offset)
    x, weight, add = (a if a is None else placed(a, offset) for a in (x, weight, add))
    device = Recorder(seed)
    kernel_rms_norm(device, x, weight, eps, out=out, add=add)
    return out, device.entries[0]


@needs_emulator
@pytest.mark.parametrize("width", [*WIDTHS, 1024, 1300, 2309, 5120])
@pytest.mark.parametrize("form", ["plain", "weight", "add", "weight and add"])
def test_the_kernel_against_the_oracle(width, form):
    x, weight, add = inputs(5, width)
    weight = weight if "weight" in form else None
    add = add if "add" in form else None
    exact, baseline = oracle(x, weight, 1e-5, add), nans(5, width)
    rms_norm(x, weight, 1e-5, out=baseline, add=add)
    first, entry = emulate(x, weight, 1e-5, add)
    assert entry == ("rms_norm_x4" if width % 4 == 0 else "rms_norm_x1")
    assert_accurate(first, baseline, exact)
    for seed in SEEDS:
        got, entry = emulate(x, weight, 1e-5, add, seed, offset=4)
        assert entry == "rms_norm_x1"
        assert_same_bits(got, first)


@needs_emulator
@pytest.mark.parametrize("width", [333, 1300])
def test_kernel_rows_stand_alone_and_outputs_may_be_inputs(width):
    x, weight, add = inputs(65, width)
    whole, _ = emulate(x, weight, 1e-6, add)
    for num_rows in (*range(1, 18), 33):
        got, _ = emulate(x[:num_rows], weight, 1e-6, add[:num_rows])
        assert_same_bits(got, whole[:num_rows])
    assert_same_bits(emulate(x[40:41], weight, 1e-6, add[40:41])[0], whole[40:41])
    for seed in SEEDS:
        copy = x.copy()
        kernel_rms_norm(Recorder(seed), copy, weight, 1e-6, out=copy, add=add)
        assert_same_bits(copy, whole)
        copy = add.copy()
        kernel_rms_norm(Recorder(seed), x, weight, 1e-6, out=copy, add=copy)
        assert_same_bits(copy, whole)


@needs_emulator
def test_kernel_zeros_and_nans():
    x = np.zeros((3, 40), np.float32)
    x[1, 3] = np.nan
    got, _ = emulate(x, None, 1e-6)
    assert (got[[0, 2]] == 0).all() and np.isnan(got[1]).all()


def test_the_kernel_refuses_wrong_arguments():
    x, weight, add = inputs(2, 64)
    for arguments in (
        (x[:, ::2], weight[:32], None),
        (x, weight[:63], None),
        (x, weight, add[:1]),
        (x.astype(np.float64), weight, None),
    ):
        with pytest.raises(MismatchError, match="rms_norm"):
            kernel_rms_norm(
                Recorder(), arguments[0], arguments[1], 1e-5, add=arguments[2], out=nans(*x.shape)
            )


def check_prepared(run, plain, kind, width, offset=0, int8_rows=Int8Rows, spare=2):
    """Acts are what quantize makes of out, and out is what it is without acts, or not asked for."""
    x, weight, add = inputs(9, width)
    x[2, 5], x[4] = np.nan, 0
    x, add = placed(x, offset), placed(add, offset)
    for more in ({}, {"add": add}):
        alone, out = placed(nans(9, width), offset), placed(nans(9, width), offset)
        plain(x, weight, 1e-5, out=alone, **more)
        for written in (out, None):
            acts = empty_acts(kind, 9 + spare, width, int8_rows)
            run(x, weight, 1e-5, out=written, acts=acts, **more)
            assert_prepared(acts, alone, kind)
        assert_same_bits(out, alone)


def taped(level, *args, **keywords):
    tape = Tape(level)
    host_rms_norm(tape, *args, **keywords)
    tape.run()


@pytest.mark.parametrize(("width", "kind"), [(77, "float"), *product((96, 1056), PREPARED)])
def test_rows_are_prepared_as_quantize_does(width, kind):
    check_prepared(rms_norm, rms_norm, kind, width, spare=0)
    for level in LEVELS.values():
        check_prepared(partial(taped, level), partial(taped, level), kind, width, int8_rows=HostInt8Rows)


@needs_emulator
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", PREPARED)
@pytest.mark.parametrize("width", [32, 96, 1056, 2080])
def test_the_kernel_prepares_rows_as_quantize_does(width, kind, seed):
    plain = partial(kernel_rms_norm, Recorder())
    for offset, entry in ((0, "x4"), (4, "x1")):
        device = Recorder(seed)
        check_prepared(partial(kernel_rms_norm, device), plain, kind, width, offset)
        if kind == "float":
            assert device.entries.count(f"rms_norm_{entry}") == 4
        else:
            assert device.entries == [f"rms_norm_acts_{entry}"] * 4


@needs_emulator
def test_the_kernel_prepares_float_rows_of_any_width():
    run = partial(kernel_rms_norm, Recorder())
    check_prepared(run, run, "float", 77)


@pytest.mark.parametrize("launch", [host_rms_norm, kernel_rms_norm])
def test_wrong_acts_and_nothing_to_write_are_refused(launch):
    x = nans(3, 64)
    target = Tape(0) if launch is host_rms_norm else Recorder()
    for wrong in (empty_acts("int8", 2, 64), empty_acts("int8", 3, 96), None):
        with pytest.raises(MismatchError, match=r"rms_norm: (the|neither)"):
            launch(target, x, None, 1e-5, out=None, acts=wrong)
