"""block_conv: by equality with the reference, which an oracle holds."""

from functools import partial

import numpy as np
import pytest
from accuracy import assert_accurate
from emulated import SEEDS, Recorder, needs_emulator, placed
from levels import LEVELS
from rows import PREPARED, assert_prepared, assert_same_bits, empty_acts, nans

from specrt._ext.host_ops import Tape
from specrt.acts import Acts, Int8Rows
from specrt.errors import MismatchError
from specrt.host.acts import HostInt8Rows
from specrt.host.block_conv import block_conv as host_block_conv
from specrt.kernels.block_conv import block_conv as kernel_block_conv
from specrt.reference.block_conv import block_conv
from specrt.state.recurrent import MAX_CONV
from specrt.state.step import StepInputs

BLOCKS = (3, 9, 1, 7)
"""Rows of each sequence."""
NUM_ROWS = sum(BLOCKS)
SHAPES = [
    *((96, group, 4) for group in (1, 8, 16, 32, 96)),
    (256, 16, 4),
    (192, 64, 3),
    (105, 7, 5),
    (99, 3, 1),
    (240, 5, 2),
    (240, 24, 3),
    (1056, 33, 2),
    (1056, 16, 4),
    (37, 37, 3),
    (64, 16, MAX_CONV),
]
"""Width, channels of a group, and taps."""


def on_host(level):
    def run(*args, **keywords):
        tape = Tape(level)
        host_block_conv(tape, *args, **keywords)
        tape.run()
        assert tape.num_phases == 1

    return run


ON_HOST = {name: on_host(level) for name, level in LEVELS.items()}


def step_of(blocks=BLOCKS, buffer=np.zeros):
    """Blocks one behind the other."""
    step = StepInputs(max(NUM_ROWS, sum(blocks)), len(blocks), 1, 0, buffer)
    step.row_seqs[:] = 2**20  # behind the rows nothing is read
    step.row_seqs[: sum(blocks)] = np.repeat(np.arange(len(blocks)), blocks)
    step.row_offsets[:] = np.cumsum([0, *blocks])
    return step


def data(shape, num_rows=NUM_ROWS, place=np.copy):
    """x, the taps of each row, and those that all have."""
    (width, group, taps), rng = shape, np.random.default_rng(shape)
    x = rng.standard_normal((num_rows, width), dtype=np.float32)
    dynamic = rng.standard_normal((num_rows, 2 * taps * (width // group)), dtype=np.float32)
    base = rng.standard_normal((2, taps, width), dtype=np.float32)
    return place(x), place(dynamic), place(base)


def oracle(x, dynamic, base, side, blocks):
    """By blocks that stand behind zeros."""
    _, taps, width = base.shape
    groups = dynamic.reshape(len(x), 2, taps, -1).astype(np.float64)
    own = np.repeat(groups[:, side], width // groups.shape[-1], axis=-1) + base[side]
    out, start = np.zeros(x.shape), 0
    for rows in blocks:
        padded = np.concatenate([np.zeros((taps - 1, width)), x[start : start + rows]])
        for j in range(taps):
            part = padded[taps - 1 - j : taps - 1 - j + rows]
            out[start : start + rows] += own[start : start + rows, j] * part
        start += rows
    return out


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_reference_is_near_the_oracle(shape):
    x, dynamic, base = data(shape)
    for side in (0, 1):
        out, exact = nans(*x.shape), oracle(x, dynamic, base, side, BLOCKS)
        block_conv(x, dynamic, base, step_of(), side=side, out=out)
        plain = nans(*x.shape)
        plain[:] = oracle(*(a.astype(np.float32) for a in (x, dynamic, base)), side, BLOCKS)
        assert_accurate(out, plain, exact)
        block_conv(x, dynamic, base, step_of(), side=side, out=plain, add=x)
        assert_same_bits(plain, x + out)


@pytest.mark.parametrize("run", ON_HOST.values(), ids=ON_HOST)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_host_has_the_bits_of_the_reference(shape, run):
    check_bits(run, data(shape), step_of())


def check_bits(run, arrays, step, place=np.copy):
    """With rows that are added and without, to those themselves too, on either side."""
    x = arrays[0]
    add = place(np.random.default_rng(3).standard_normal(x.shape, dtype=np.float32))
    for side in (0, 1):
        for addend in (None, add):
            expected, got = nans(*x.shape), place(nans(*x.shape))
            block_conv(*arrays, step, side=side, out=expected, add=addend)
            run(*arrays, step, side=side, out=got, add=addend)
            assert_same_bits(got, expected)
        in_place = place(add)
        run(*arrays, step, side=side, out=in_place, add=in_place)
        assert_same_bits(in_place, expected)


def check_prepared(run, arrays, step, kind, layout, place=np.copy, spare=0):
    """Acts are what quantize makes of out, which is what it is without them, or not asked for."""
    x = arrays[0]
    for addend in (None, place(x[::-1].copy())):
        alone = nans(*x.shape)
        block_conv(*arrays, step, side=1, out=alone, add=addend)
        for out in (None, place(nans(*x.shape))):
            acts = empty_acts(kind, len(x) + spare, x.shape[1], layout)
            run(*arrays, step, side=1, out=out, add=addend, acts=acts)
            assert_prepared(acts, alone, kind)
            if out is not None:
                assert_same_bits(out, alone)


PREPARED_CASES = [
    *((shape, kind) for shape in ((96, 16, 4), (1056, 33, 2), (96, 8, 3)) for kind in PREPARED),
    ((105, 7, 5), "float"),
]


@pytest.mark.parametrize(("shape", "kind"), PREPARED_CASES, ids=str)
def test_rows_are_prepared_as_quantize_does(shape, kind):
    check_prepared(block_conv, data(shape), step_of(), kind, Int8Rows)
    for run in ON_HOST.values():
        check_prepared(run, data(shape), step_of(), kind, HostInt8Rows)


def check_blocks(run, place=np.copy):
    """A row's result is that of its block alone, wherever that lies, and nothing else is read."""
    shape = (96, 8, 4)
    x, dynamic, base = data(shape)
    whole = nans(*x.shape)
    block_conv(x, dynamic, base, step_of(), side=0, out=whole)
    start = 0
    for rows in BLOCKS:
        own = slice(start, start + rows)
        for before in (0, 5):
            padded = [
                np.concatenate([np.full((before, a.shape[1]), np.nan, np.float32), a[own]])
                for a in (x, dynamic)
            ]
            blocks = (before, rows) if before else (rows,)
            step = step_of(blocks, lambda *size: place(np.zeros(*size)))
            got = place(nans(before + rows, shape[0]))
            run(place(padded[0]), place(padded[1]), base, step, side=0, out=got)
            assert_same_bits(got[before:], whole[own])
            for fewer in range(1, rows):  # later rows of a block change nothing of earlier ones
                short = step_of(
                    (before, fewer) if before else (fewer,), lambda *s: place(np.zeros(*s))
                )
                got = place(nans(before + fewer, shape[0]))
                arrays = [place(a[: before + fewer]) for a in padded]
                run(*arrays, base, short, side=0, out=got)
                assert_same_bits(got[before:], whole[own][:fewer])
        start += rows


@pytest.mark.parametrize("run", ON_HOST.values(), ids=ON_HOST)
def test_a_block_does_not_know_of_the_others(run):
    check_blocks(run)


@needs_emulator
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_kernel_has_the_bits_of_the_reference(shape, seed):
    for offset in (0, 4):
        device, place = Recorder(seed), partial(placed, offset=offset)
        step = step_of(buffer=lambda *size: placed(np.zeros(*size)))
        check_bits(partial(kernel_block_conv, device), data(shape, place=place), step, place)
        form = "x4" if shape[1] % 4 == 0 and not offset else "x1"
        assert set(device.entries) == {f"block_conv_{form}"} and len(device.entries) == 6


@needs_emulator
@pytest.mark.parametrize(("shape", "kind"), PREPARED_CASES, ids=str)
def test_the_kernel_prepares_rows_as_quantize_does(shape, kind):
    for seed in SEEDS:
        for offset in (0, 4):
            place = partial(placed, offset=offset)
            step = step_of(buffer=lambda *size: placed(np.zeros(*size)))
            device = Recorder(seed)
            check_prepared(
                partial(kernel_block_conv, device), data(shape, place=place), step, kind, Int8Rows,
                place, 2,
            )  # fmt: skip
            assert len(device.entries) == 4


@needs_emulator
def test_a_block_of_the_kernel_does_not_know_of_the_others():
    device = Recorder(2)
    check_blocks(partial(kernel_block_conv, device), placed)
    device.entries.clear()
    x, dynamic, base = data((96, 8, 4), 0)
    kernel_block_conv(device, x, dynamic, base, step_of((0,)), side=0, out=nans(0, 96))
    assert device.entries == []


@pytest.mark.parametrize("launch", [host_block_conv, kernel_block_conv])
def test_wrong_arguments_are_refused(launch):
    x, dynamic, base = data((96, 8, 4))
    host = launch is host_block_conv
    layout = HostInt8Rows if host else Int8Rows
    right = {"x": x, "dynamic": dynamic, "base": base, "step": step_of(), "side": 1}
    right |= {"out": nans(*x.shape)}
    for wrong in (
        {"x": x[:, ::2]},
        {"x": x.astype(np.float64)},
        {"x": x[:-1].copy()},
        {"dynamic": dynamic[:, :-8].copy()},
        {"dynamic": dynamic[:, :0]},
        {"dynamic": nans(NUM_ROWS, 8 * 7)},
        {"dynamic": nans(NUM_ROWS, 8 * 96 * 2)},
        {"base": base[:1]},
        {"base": base[:, :0]},
        {"base": base[:, :, :-1].copy()},
        {"base": base[0]},
        {"step": StepInputs(NUM_ROWS - 1, 1, 1, 0)},
        {"side": 2},
        {"side": -1},
        {"out": x},
        {"out": nans(NUM_ROWS, 95)},
        {"out": None},
        {"out": None, "acts": Acts(NUM_ROWS, 96, None, None, None)},
        {"acts": empty_acts("int8", NUM_ROWS - 1, 96, layout)},
        {"acts": empty_acts("int8", NUM_ROWS, 64, layout)},
        {"add": nans(NUM_ROWS - 1, 96)},
    ):
        with pytest.raises(MismatchError, match="block_conv"):
            launch(Tape(0) if host else Recorder(), **(right | wrong))
