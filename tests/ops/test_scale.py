"""scale: by equality."""

from functools import partial

import numpy as np
import pytest
from emulated import SEEDS, Recorder, needs_emulator, placed
from levels import LEVELS
from rows import assert_same_bits, nans

from specrt._ext.host_ops import Tape
from specrt.errors import MismatchError
from specrt.host.scale import scale as host_scale
from specrt.kernels.scale import scale as kernel_scale
from specrt.reference.scale import scale

SHAPES = [(1, 1), (3, 37), (2, 64), (5, 1431), (17, 1024)]
FACTORS = [0.1, -3.0, 1e-3]


def on_host(level):
    def run(*args, **keywords):
        tape = Tape(level)
        host_scale(tape, *args, **keywords)
        tape.run()
        assert tape.num_phases == 1

    return run


ON_HOST = {name: on_host(level) for name, level in LEVELS.items()}


def data(shape, seed=0):
    """x and add, with what neither rounds."""
    x, add = np.random.default_rng([seed, *shape]).standard_normal((2, *shape), dtype=np.float32)
    x.flat[:: max(1, x.size // 5)] = (-0.0, np.nan, np.inf, 1e30)[seed % 4]
    add.flat[:: max(1, x.size // 3)] = (0.0, 1.0, -np.inf, -1e27)[seed % 4]
    return x, add


@pytest.mark.parametrize("factor", FACTORS)
def test_the_product_and_the_sum_are_rounded_once(factor):
    x, add = data((7, 33), seed=3)
    out, by = nans(*x.shape), np.float64(np.float32(factor))
    scale(x, factor, out=out)
    assert_same_bits(out, (x * by).astype(np.float32))
    scale(x, factor, out=out, add=add)
    exact = x.astype(np.longdouble) * by + add
    assert (np.abs(out - exact) <= np.spacing(np.abs(out)) / 2).all()


@pytest.mark.parametrize("run", ON_HOST.values(), ids=ON_HOST)
@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize("shape", SHAPES)
def test_the_host_has_the_bits_of_the_reference(shape, factor, run):
    for seed in range(4):
        x, add = data(shape, seed)
        for addend in (None, add):
            expected, got = nans(*shape), nans(*shape)
            scale(x, factor, out=expected, add=addend)
            run(x, factor, out=got, add=addend)
            assert_same_bits(got, expected)


@pytest.mark.parametrize("run", ON_HOST.values(), ids=ON_HOST)
def test_the_result_may_lie_in_what_was_read(run):
    check_in_place(run, np.copy)


def check_in_place(run, buffer):
    x, add = map(buffer, data((5, 1431)))
    expected = nans(*x.shape)
    scale(x, 0.7, out=expected, add=add)
    for place in (0, 1):
        read = buffer(x), buffer(add)
        out = read[place]
        run(read[0], 0.7, out=out, add=read[1])
        assert_same_bits(out, expected)


@needs_emulator
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_the_kernel_has_the_bits_of_the_reference(shape, seed):
    x, add = data(shape, seed)
    for offset in (0, 4):
        for addend in (None, placed(add, offset)):
            device, expected = Recorder(seed), nans(*shape)
            got = placed(nans(*shape), offset)
            scale(x, -1.3, out=expected, add=addend)
            kernel_scale(device, placed(x, offset), -1.3, out=got, add=addend)
            assert_same_bits(got, expected)
            fours = not offset and x.size % 4 == 0
            assert device.entries == [f"scale_x{4 if fours else 1}"]


@needs_emulator
def test_the_kernels_result_may_lie_in_what_was_read():
    for seed in SEEDS:
        check_in_place(partial(kernel_scale, Recorder(seed)), placed)
    device = Recorder()
    kernel_scale(device, nans(0, 5), 2.0, out=nans(0, 5))
    assert device.entries == []


@pytest.mark.parametrize("launch", [host_scale, kernel_scale])
def test_wrong_arguments_are_refused(launch):
    x, out = nans(3, 8), nans(3, 8)
    for x_, out_, add in (
        (x[:, ::2], out[:, :4].copy(), None),
        (x.astype(np.float64), out, None),
        (x, out[:2], None),
        (x, out, nans(3, 7)),
        (x, out, nans(1, 8)),
    ):
        with pytest.raises(MismatchError, match="scale"):
            launch(Tape(0) if launch is host_scale else Recorder(), x_, 2.0, out=out_, add=add)
