"""linear: host and kernels equal the reference for every type, role and instruction set."""

import numpy as np
import pytest
from emulated import Recorder, needs_emulator, placed
from levels import LEVELS
from quant_data import FLOAT_BYTES, random_tensor
from rows import (
    assert_same_bits,
    both_acts,
    both_weights,
    host_acts,
    host_weight,
    hostile_rows,
    kernel_acts,
    kernel_weight,
    nans,
)

from specrt._ext.host_ops import Tape
from specrt.acts import Acts
from specrt.errors import MismatchError
from specrt.host.linear import linear as host_linear
from specrt.host.quantize import quantize as host_quantize
from specrt.kernels.linear import linear as kernel_linear
from specrt.reference.fma import fma32
from specrt.reference.linear import linear
from specrt.reference.quant_blocks import QUANT_TYPES
from specrt.reference.quantize import quantize
from specrt.reference.weights import ReferenceWeight

NUM_ROWS = (1, 2, 3, 17, 65)
each_level = pytest.mark.parametrize("level", LEVELS.values(), ids=LEVELS)


def columns(type_name):
    """An odd number of blocks; for float types the last is short."""
    if type_name in FLOAT_BYTES:
        return 13 * 32 + 7
    return 5 * 256 if QUANT_TYPES[type_name].block == 256 else 11 * 32


def run_host(level, pairs, acts, add=None):
    tape = Tape(level)
    host_linear(tape, pairs, acts, add=add)
    tape.run()


def check_equal(level, weight, num_rows):
    """Host equals reference."""
    acts = both_acts(level, hostile_rows(num_rows, weight.host.shape[1]), [weight])
    shape = (num_rows, weight.host.shape[0])
    expected, got = nans(*shape), nans(*shape)
    linear([(weight.reference, expected)], acts.reference)
    run_host(level, [(weight.host, got)], acts.host)
    assert_same_bits(got, expected)
    return got


@each_level
@pytest.mark.parametrize("type_name", QUANT_TYPES)
def test_int8(level, type_name):
    weight = both_weights(random_tensor(type_name, 21, columns(type_name)))
    for num_rows in NUM_ROWS:
        got = check_equal(level, weight, num_rows)
        assert np.isnan(got[2:3]).all() and np.isfinite(got[:2]).all()


@each_level
@pytest.mark.parametrize("type_name", QUANT_TYPES)
def test_int8x2_and_f32_roles(level, type_name):
    tensor = random_tensor(type_name, 18, columns(type_name))
    for role in ("int8x2", "f32"):
        check_equal(level, both_weights(tensor, role), 3)


@each_level
@pytest.mark.parametrize("type_name", FLOAT_BYTES)
def test_float_types(level, type_name):
    weight = both_weights(random_tensor(type_name, 21, columns(type_name)))
    for num_rows in NUM_ROWS:
        check_equal(level, weight, num_rows)


@each_level
@pytest.mark.parametrize("type_name", [*QUANT_TYPES, *FLOAT_BYTES])
def test_a_row_alone_equals_itself_among_others(level, type_name):
    weight = host_weight(random_tensor(type_name, 37, columns(type_name)), "int8")
    x = hostile_rows(65, weight.shape[1])
    x[[3, 5, 6, 7]] = x[0]  # whatever panel and place a row has
    together, alone = nans(65, 37), nans(1, 37)
    run_host(level, [(weight, together)], host_rows(level, x, weight))
    for row in (0, 1, 2, 3, 7, 16, 64):
        run_host(level, [(weight, alone)], host_rows(level, x[row : row + 1], weight))
        assert_same_bits(alone[0], together[row])


def host_rows(level, x, weight):
    """x as the host prepares it."""
    acts = host_acts(*x.shape, [weight])
    tape = Tape(level)
    host_quantize(tape, x, out=acts)
    tape.run()
    return acts


@each_level
def test_several_pairs_bias_and_add(level):
    rng = np.random.default_rng(5)
    bias = rng.standard_normal(21, dtype=np.float32)
    weights = [
        both_weights(random_tensor("Q4_K", 33, 768)),
        both_weights(random_tensor("Q6_K", 7, 768), "int8x2", bias[:7]),
        both_weights(random_tensor("F16", 21, 768), "int8", bias),
        both_weights(random_tensor("Q5_0", 16, 768), "f32"),
    ]
    acts = both_acts(level, hostile_rows(17, 768), weights)
    expected = [nans(17, w.host.shape[0]) for w in weights]
    got = [nans(*e.shape) for e in expected]
    linear([(w.reference, e) for w, e in zip(weights, expected, strict=True)], acts.reference)
    run_host(level, [(w.host, g) for w, g in zip(weights, got, strict=True)], acts.host)
    for g, e in zip(got, expected, strict=True):
        assert_same_bits(g, e)
    add = rng.standard_normal((17, 7), dtype=np.float32)
    linear([(weights[1].reference, expected[1])], acts.reference, add=add)
    run_host(level, [(weights[1].host, add)], acts.host, add=add)  # out may be add
    assert_same_bits(add, expected[1])
    assert np.isfinite(add[:2]).all()


def check_kernel(tensor, role, x, bias=None, device=None):
    """The kernel equals the reference."""
    weight, tiles = ReferenceWeight(tensor, role, bias), kernel_weight(tensor, role, bias)
    acts = Acts.empty(*x.shape, [weight])
    quantize(x, out=acts)
    expected, got = nans(len(x), len(tensor.raw)), placed(nans(len(x), len(tensor.raw)))
    linear([(weight, expected)], acts)
    kernel_linear(device or Recorder(), [(tiles, got)], kernel_acts(acts, [tiles]))
    assert_same_bits(got, expected)
    return got


@needs_emulator
@pytest.mark.parametrize("type_name", [*QUANT_TYPES, *FLOAT_BYTES])
def test_the_kernel_equals_the_reference(type_name):
    tensor = random_tensor(type_name, 21, columns(type_name))
    for num_rows in (1, 2, 3, 11, 17, 65):
        got = check_kernel(tensor, "int8", hostile_rows(num_rows, columns(type_name)))
        assert np.isnan(got[2:3]).all() and np.isfinite(got[:2]).all()
    for role in ("int8x2", "f32"):
        for num_rows in (1, 3, 9):
            check_kernel(tensor, role, hostile_rows(num_rows, columns(type_name)))


@needs_emulator
@pytest.mark.parametrize("type_name", ["Q4_K", "Q6_K", "Q8_0", "F16"])
@pytest.mark.parametrize("role", ["int8", "int8x2", "f32"])
def test_the_kernels_rows_stand_alone(type_name, role):
    weight = kernel_weight(random_tensor(type_name, 37, columns(type_name)), role)
    x = hostile_rows(65, weight.shape[1])
    together = None
    for num_rows in (65, 33, *range(17, 0, -1)):
        acts = Acts.empty(num_rows, x.shape[1], [weight])
        quantize(x[:num_rows], out=acts)
        got = placed(nans(num_rows, 37))
        kernel_linear(Recorder(num_rows), [(weight, got)], kernel_acts(acts, [weight]))
        together = got if together is None else together
        assert_same_bits(got, together[:num_rows])


@needs_emulator
def test_the_kernels_pairs_bias_and_add():
    rng = np.random.default_rng(5)
    bias = rng.standard_normal(21, dtype=np.float32)
    kinds = [("Q4_K", 33, "int8"), ("Q6_K", 7, "int8x2"), ("F16", 21, "int8"), ("Q6_K", 16, "f32")]
    kinds += [("Q4_K", 7, "int8"), ("Q6_K", 21, "int8x2"), ("Q4_K", 21, "int8"), ("F16", 7, "f32")]
    tensors = [random_tensor(name, rows, 768, seed) for seed, (name, rows, _) in enumerate(kinds)]
    given = [bias[:rows] if place % 3 else None for place, (_, rows, _) in enumerate(kinds)]
    references, tiles = (
        [make(t, k[2], b) for t, k, b in zip(tensors, kinds, given, strict=True)]
        for make in (ReferenceWeight, kernel_weight)
    )
    for num_rows in (1, 7, 17, 65):
        acts = Acts.empty(num_rows, 768, references)
        quantize(hostile_rows(max(num_rows, 9), 768)[:num_rows], out=acts)
        expected, got = ([placed(nans(num_rows, k[1])) for k in kinds] for _ in range(2))
        rows, device = kernel_acts(acts, tiles), Recorder()
        linear(list(zip(references, expected, strict=True)), acts)
        kernel_linear(device, list(zip(tiles, got, strict=True)), rows)
        for g, e in zip(got, expected, strict=True):
            assert_same_bits(g, e)
        assert len(device.entries) == 4  # one for each type and form
        add = placed(rng.standard_normal((num_rows, 7), dtype=np.float32))
        linear([(references[1], expected[1])], acts, add=add)
        kernel_linear(device, [(tiles[1], add)], rows, add=add)  # out may be add
        assert_same_bits(add, expected[1])


def test_fewer_rows_than_the_acts_hold():
    weight = both_weights(random_tensor("Q4_1", 20, 352))
    x = hostile_rows(9, 352)
    acts = both_acts(0, x[:2], [weight])
    longer = host_acts(9, 352, [weight.host])
    expected, got = nans(2, 20), nans(9, 20)
    linear([(weight.reference, expected)], acts.reference)
    tape = Tape(0)
    host_quantize(tape, x[:2], out=longer)
    host_linear(tape, [(weight.host, got[:2])], longer.rows(2))
    tape.run()
    assert_same_bits(got[:2], expected)
    assert np.isnan(got[2:]).all()
    with pytest.raises(MismatchError, match="9 rows"):
        host_linear(Tape(0), [(weight.host, got[:2])], longer)


@pytest.mark.parametrize(("type_name", "block"), [("Q4_K", 256), ("Q8_0", 32), ("BF16", 32)])
def test_float_products_are_cut_into_segments_of_whole_weight_blocks(type_name, block):
    width = 13 * 256
    weight = both_weights(random_tensor(type_name, 3, width), "f32")
    x = np.random.default_rng(4).standard_normal((2, width), dtype=np.float32)
    values = weight.reference.values
    step = block * -(-width // block // 8)
    total = np.zeros((2, 3), np.float32)
    for start in range(0, width, step):
        acc = np.zeros_like(total)
        for column in range(start, min(start + step, width)):
            acc = fma32(values[None, :, column], x[:, column, None], acc)
        total += acc
    acts = both_acts(0, x, [weight])
    expected, got = nans(2, 3), nans(2, 3)
    linear([(weight.reference, expected)], acts.reference)
    run_host(0, [(weight.host, got)], acts.host)
    assert_same_bits(expected, total)
    assert_same_bits(got, total)


@pytest.mark.parametrize("role", ["int8", "int8x2", "f32"])
@pytest.mark.parametrize("type_name", ["Q4_K", "Q8_0", "IQ3_S", "MXFP4", "F16"])
def test_reference_is_the_matrix_product(type_name, role):
    weight = ReferenceWeight(random_tensor(type_name, 40, 1280), role)
    x = np.random.default_rng(0).standard_normal((4, 1280), dtype=np.float32)
    acts = Acts.empty(4, 1280, [weight])
    quantize(x, out=acts)
    out = nans(4, 40)
    linear([(weight, out)], acts)
    exact = x.astype(np.float64) @ weight.values.astype(np.float64).T
    size = np.abs(x).astype(np.float64) @ np.abs(weight.values).astype(np.float64).T
    bound = {"f32": 1e-6, "int8": 1e-2, "int8x2": 1e-4}[weight.form]
    assert (np.abs(out - exact) <= bound * size).all()


def test_tiny_mxfp4_scales_count_as_zero():
    tensor = random_tensor("MXFP4", 3, 32)
    tensor.raw[:, 0] = (97, 98, 0)  # 2^-31, 2^-30, 2^-128
    for role in ("int8", "int8x2", "f32"):
        got = check_equal(0, both_weights(tensor, role), 1)
        assert got[0, 0] == got[0, 2] == 0 and got[0, 1] != 0


def test_wrong_arguments_are_refused():
    weight = host_weight(random_tensor("Q8_0", 20, 352))
    acts = Acts.empty(2, 352, [weight])
    with pytest.raises(MismatchError, match="expected contiguous"):
        host_linear(Tape(0), [(weight, nans(2, 21))], acts)
    with pytest.raises(MismatchError, match="strided"):
        host_linear(Tape(0), [(weight, nans(20, 2).T)], acts)
    with pytest.raises(MismatchError, match="at least 3"):
        host_linear(Tape(0), [(weight, nans(3, 20))], acts)
    for wrong in (3, -1):
        with pytest.raises(MismatchError, match=f"{wrong} rows of acts that hold 2"):
            acts.rows(wrong)
    with pytest.raises(MismatchError, match="f32"):
        host_linear(Tape(0), [(host_weight(random_tensor("F32", 20, 352)), nans(2, 20))], acts)
    with pytest.raises(MismatchError, match="one out"):
        host_linear(Tape(0), [(weight, nans(2, 20))] * 2, acts, add=nans(2, 20))
    with pytest.raises(MismatchError, match="pairs"):
        host_linear(Tape(0), [(weight, nans(2, 20))] * 9, acts)
    tensor = random_tensor("Q8_0", 20, 352)
    with pytest.raises(MismatchError, match="expected contiguous"):
        host_weight(type(tensor)("w", (20, 384), tensor.type, tensor.raw))
    with pytest.raises(MismatchError, match="multiple of 32"):
        host_weight(type(tensor)("w", (20, 350), tensor.type, tensor.raw))
