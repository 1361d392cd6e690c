"""glu: host against a float64 oracle; every instruction set, and the kernel, the same bits."""

from functools import partial
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
from accuracy import assert_accurate
from emulated import SEEDS, Recorder, needs_emulator, placed
from levels import LEVELS
from quant_data import random_tensor
from rows import (
    PREPARED,
    assert_prepared,
    assert_same_bits,
    both_acts,
    empty_acts,
    forms_of,
    host_weight,
    nans,
)

from specrt._ext.host_ops import Tape
from specrt.acts import Int8Rows
from specrt.errors import MismatchError, UnsupportedError
from specrt.host import HostOps
from specrt.host.acts import HostInt8Rows
from specrt.host.copy import copy as host_copy
from specrt.host.glu import glu as host_glu
from specrt.host.linear import linear as host_linear
from specrt.kernels.glu import glu as kernel_glu
from specrt.reference.glu import glu

ACTIVATIONS = ("silu", "gelu_tanh", "sigmoid")


def run(level, gate, up, activation, out=None):
    out = nans(*gate.shape) if out is None else out
    tape = Tape(level)
    host_glu(tape, gate, up, activation=activation, out=out)
    tape.run()
    return out


def oracle(gate, up, activation):
    g = gate.astype(np.float64)
    if activation in ("silu", "sigmoid"):
        return (g if activation == "silu" else 1) / (1 + np.exp(-g)) * up
    return 0.5 * g * (1 + np.tanh(np.sqrt(2 / np.pi) * (g + 0.044715 * g**3))) * up


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("spread", [0.1, 1.0, 30.0])
def test_against_the_oracle(activation, spread):
    rng = np.random.default_rng(5)
    gate, up = rng.standard_normal((2, 7, 1431), dtype=np.float32)
    gate *= np.float32(spread)
    baseline = nans(*gate.shape)
    glu(gate, up, activation=activation, out=baseline)
    exact = oracle(gate, up, activation)
    results = [run(level, gate, up, activation) for level in LEVELS.values()]
    for got in results:
        assert_accurate(got, baseline, exact)
        assert_same_bits(got, results[0])


@pytest.mark.parametrize("level", LEVELS.values(), ids=LEVELS)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_rows_stand_alone_and_outputs_may_be_inputs(level, activation):
    gate, up = np.random.default_rng(6).standard_normal((2, 65, 131), dtype=np.float32)
    whole = run(level, gate, up, activation)
    for num_rows in (*range(1, 18), 33):
        assert_same_bits(run(level, gate[:num_rows], up[:num_rows], activation), whole[:num_rows])
    copy = gate.copy()
    assert_same_bits(run(level, copy, up, activation, out=copy), whole)


@pytest.mark.parametrize("level", LEVELS.values(), ids=LEVELS)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_far_values_keep_their_limits(level, activation):
    gate = np.array([[-1e4, -200, 200, 1e4, 0, -0.0, np.nan]], np.float32)
    got = run(level, gate, np.ones_like(gate), activation)
    ends = [0, 0, 1, 1, 0.5, 0.5] if activation == "sigmoid" else [0, 0, 200, 1e4, 0, 0]
    assert got[0, :6].tolist() == ends and np.isnan(got[0, 6])


def test_wrong_arguments_are_refused():
    x = np.zeros((2, 8), np.float32)
    with pytest.raises(MismatchError, match="up"):
        run(0, x, x[:1], "silu")
    with pytest.raises(UnsupportedError, match="relu"):
        run(0, x, x, "relu")


def emulate(gate, up, activation, seed=0, offsets=(0, 0, 0), flush=False):
    """What the kernel writes, and its entry's form."""
    gate, up, out = map(placed, (gate, up, nans(*gate.shape)), offsets)
    device = Recorder(seed, flush)
    kernel_glu(device, gate, up, activation=activation, out=out)
    return out, device.entries[0].rpartition("_")[2]


@needs_emulator
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("shape", [(1, 1), (3, 37), (5, 1431), (17, 132)])
def test_the_kernel_has_the_bits_of_the_host(activation, shape, seed):
    gate, up = np.random.default_rng(7).standard_normal((2, *shape), dtype=np.float32)
    gate *= np.float32(30)
    gate.flat[:: max(1, gate.size // 7)] = (-1e4, -200, 200, 1e4, 0, -0.0, np.nan, np.inf)[seed]
    expected = run(0, gate, up, activation)
    got, form = emulate(gate, up, activation, seed)
    assert_same_bits(got, expected)
    assert form == ("x4" if gate.size % 4 == 0 else "x1")
    for offsets in ((4, 0, 0), (0, 8, 0), (0, 0, 12)):
        got, form = emulate(gate, up, activation, seed, offsets)
        assert_same_bits(got, expected)
        assert form == "x1"
    flushed, _ = emulate(gate, up, activation, seed, flush=True)
    tiny = np.abs(expected) < 2.0**-100
    assert (np.abs(flushed[tiny]) < 2.0**-99).all()
    flushed[tiny] = expected[tiny] = 0
    assert_same_bits(flushed, expected)


@needs_emulator
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_kernel_rows_stand_alone_and_outputs_may_be_inputs(activation):
    gate, up = np.random.default_rng(6).standard_normal((2, 65, 131), dtype=np.float32)
    whole, _ = emulate(gate, up, activation)
    for num_rows in (*range(1, 18), 33):
        got, _ = emulate(gate[:num_rows], up[:num_rows], activation)
        assert_same_bits(got, whole[:num_rows])
    for seed in SEEDS:
        copy = gate.copy()
        kernel_glu(Recorder(seed), copy, up, activation=activation, out=copy)
        assert_same_bits(copy, whole)


def test_the_kernel_refuses_wrong_arguments():
    x = np.zeros((2, 8), np.float32)
    for gate, up, activation, error in (
        (x, x[:1], "silu", MismatchError),
        (x[:, ::2], x[:, ::2], "silu", MismatchError),
        (x.astype(np.float64), x, "silu", MismatchError),
        (x, x, "relu", UnsupportedError),
    ):
        with pytest.raises(error, match="glu"):
            kernel_glu(Recorder(), gate, up, activation=activation, out=nans(*gate.shape))


def check_prepared(run, kind, width, offset=0, int8_rows=Int8Rows, spare=2):
    """Acts are what quantize makes of out, and out is what it is without acts, or not asked for."""
    gate, up = np.random.default_rng(8).standard_normal((2, 9, width), dtype=np.float32)
    gate[2, 5], gate[4] = np.nan, 0
    gate, up = placed(gate, offset), placed(up, offset)
    for activation in ACTIVATIONS:
        alone, copy = placed(nans(9, width), offset), placed(gate, offset)
        run(gate, up, activation=activation, out=alone)
        for one, written in ((gate, None), (copy, copy)):
            acts = empty_acts(kind, 9 + spare, width, int8_rows)
            run(one, up, activation=activation, out=written, acts=acts)
            assert_prepared(acts, alone, kind)
        assert_same_bits(copy, alone)


def taped(level, *args, **keywords):
    tape = Tape(level)
    host_glu(tape, *args, **keywords)
    tape.run()


@pytest.mark.parametrize(("width", "kind"), [(77, "float"), *product((96, 1056), PREPARED)])
def test_rows_are_prepared_as_quantize_does(width, kind):
    check_prepared(glu, kind, width, spare=0)
    for level in LEVELS.values():
        check_prepared(partial(taped, level), kind, width, int8_rows=HostInt8Rows)


@needs_emulator
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", PREPARED)
@pytest.mark.parametrize("width", [32, 96, 1056])
def test_the_kernel_prepares_rows_as_quantize_does(width, kind, seed):
    for offset, entry in ((0, "x4"), (4, "x1")):
        device = Recorder(seed)
        check_prepared(partial(kernel_glu, device), kind, width, offset)
        for activation in ACTIVATIONS:
            plain = device.entries.count(f"glu_{activation}_{entry}")
            prepared = device.entries.count(f"glu_{activation}_acts_{entry}")
            assert (plain, prepared) == ((3, 0) if kind == "float" else (1, 2))
        assert kind == "float" or len(device.entries) == 3 * len(ACTIVATIONS)


@needs_emulator
def test_the_kernel_prepares_float_rows_of_any_width():
    check_prepared(partial(kernel_glu, Recorder()), "float", 77)


@pytest.mark.parametrize("launch", [host_glu, kernel_glu])
def test_wrong_acts_and_nothing_to_write_are_refused(launch):
    x = nans(3, 64)
    target = Tape(0) if launch is host_glu else Recorder()
    for wrong in (empty_acts("int8", 2, 64), empty_acts("int8", 3, 96), None):
        with pytest.raises(MismatchError, match=r"glu: (the|neither)"):
            launch(target, x, x, activation="silu", out=None, acts=wrong)


def gated_linear(level, width, num_rows, kind, out_width, apart):
    """Prepared gated products of two matrices, gated in the products' own phase or apart."""
    gate, up = (
        host_weight(random_tensor(name, out_width, width, seed), role)
        for seed, (name, role) in enumerate((("Q4_1", "int8"), ("Q6_K", "int8x2")))
    )
    x = np.random.default_rng(9).standard_normal((num_rows, width), dtype=np.float32)
    acts = both_acts(level, x, [SimpleNamespace(reference=w, host=w) for w in (gate, up)]).host
    sides, prepared = (
        nans(2, num_rows, out_width),
        empty_acts(kind, num_rows, out_width, HostInt8Rows),
    )
    tape = Tape(level)
    host_linear(tape, [(gate, sides[0]), (up, sides[1])], acts)
    if apart:
        host_copy(tape, x, out=np.zeros_like(x))
    host_glu(tape, sides[0], sides[1], activation="silu", out=None, acts=prepared)
    tape.run()
    return tape.num_phases, prepared


@pytest.mark.parametrize("level", LEVELS.values(), ids=LEVELS)
@pytest.mark.parametrize("kind", PREPARED)
@pytest.mark.parametrize("num_rows", [1, 3, 8, 21])
def test_products_that_are_gated_at_once_are_gated_in_their_phase(level, kind, num_rows):
    phases, together = gated_linear(level, 256, num_rows, kind, 96, apart=False)
    more, apart = gated_linear(level, 256, num_rows, kind, 96, apart=True)
    assert (phases, more) == (1, 3)
    for got, right in zip(forms_of(together), forms_of(apart), strict=True):
        assert_same_bits(got, right)


def test_some_rows_of_products_are_gated_apart():
    ops = HostOps(threads=1)
    weights = [ops.weight(random_tensor("Q8_0", 96, 64, seed)) for seed in range(2)]
    down = ops.weight(random_tensor("Q8_0", 8, 96))
    acts, prepared, x = (
        ops.acts(5, 64, weights),
        ops.acts(2, 96, [down]),
        np.ones((5, 64), np.float32),
    )
    sides = nans(2, 5, 96)
    with ops.record() as program:
        ops.quantize(x, out=acts)
        ops.linear([(weights[0], sides[0]), (weights[1], sides[1])], acts)
        ops.glu(sides[0][:2], sides[1][:2], activation="silu", out=None, acts=prepared)
    assert program.num_phases == 3
    program.run()
    assert np.isfinite(sides).all()


def test_products_of_odd_widths_and_acts_that_are_read_are_gated_apart():
    phases, _ = gated_linear(0, 256, 3, "float", 80, apart=False)
    assert phases == 2
    ops = HostOps(threads=1)
    weights = [ops.weight(random_tensor("Q8_0", 64, 64, seed)) for seed in range(2)]
    acts, x = ops.acts(3, 64, weights), np.ones((3, 64), np.float32)
    sides = nans(2, 3, 64)
    with ops.record() as program:
        ops.quantize(x, out=acts)
        ops.linear([(weights[0], sides[0]), (weights[1], sides[1])], acts)
        ops.glu(sides[0], sides[1], activation="silu", out=None, acts=acts)
    assert program.num_phases == 3
