"""The forms of cuda/linear.cu: all of the same bits, for every cut of K and of the rows."""

import numpy as np
import pytest
from emulated import SEEDS, Recorder, needs_emulator, placed
from ops.rows import assert_same_bits, hostile_rows, kernel_acts, kernel_weight, nans
from quant_data import FLOAT_BYTES, random_tensor

from specrt.acts import Acts
from specrt.errors import MismatchError
from specrt.kernels.linear import DOT, F32, MMA, TILED, choose_form, launch_linear, linear
from specrt.reference.linear import linear as reference_linear
from specrt.reference.quant_blocks import QUANT_TYPES
from specrt.reference.quantize import quantize
from specrt.reference.weights import ReferenceWeight


def prepared(tensor, role, num_rows):
    """Tiles, their acts and what they must give."""
    weight, tiles = ReferenceWeight(tensor, role), kernel_weight(tensor, role)
    width = tensor.shape[1]
    x = hostile_rows(max(num_rows, 9), max(width, 96))[:num_rows, :width].copy()
    acts = Acts.empty(*x.shape, [weight])
    quantize(x, out=acts)
    expected = nans(num_rows, tensor.shape[0])
    reference_linear([(weight, expected)], acts)
    return tiles, kernel_acts(acts, [tiles]), expected


def forms_of(weight, num_rows):
    if weight.form == "f32":
        return F32
    local = 2 * num_rows if weight.form == "int8x2" else num_rows
    return (*MMA, TILED) if local > DOT.rows else (DOT, *MMA, TILED)


def check_forms(tensor, role, num_rows, seed=0):
    """Each form equals the reference."""
    weight, acts, expected = prepared(tensor, role, num_rows)
    for form in forms_of(weight, num_rows):
        got, device = placed(nans(*expected.shape)), Recorder(seed)
        launch_linear(device, [(weight, got)], acts, num_rows, form=form)
        assert device.entries == [form.entry]
        assert_same_bits(got, expected)


@needs_emulator
@pytest.mark.parametrize("type_name", [*QUANT_TYPES, *FLOAT_BYTES])
def test_all_forms_have_the_same_bits(type_name):
    is_float, block = type_name in FLOAT_BYTES, QUANT_TYPES.get(type_name)
    width = 423 if is_float else 5 * 256 if block.block == 256 else 11 * 32
    tensor = random_tensor(type_name, 37, width)
    for role, num_rows in (("int8", 2), ("int8", 19), ("int8x2", 1), ("int8x2", 6), ("f32", 19)):
        if not (is_float and role != "f32"):
            check_forms(tensor, role, num_rows)


@needs_emulator
@pytest.mark.parametrize(
    ("type_name", "blocks"),
    [
        *(("Q4_K", n) for n in (1, 3, 9, 33)),
        *(("Q6_K", n) for n in (7, 8, 25)),
        *(("Q2_K", n) for n in (2, 17)),
        *(("Q8_0", n) for n in (1, 2, 7, 9, 33, 85)),
        *(("Q4_0", n) for n in (3, 15, 73)),
    ],
)
def test_cuts_of_k(type_name, blocks):
    """Fewer blocks than segments, odd ones, and more than are on their way at once."""
    tensor = random_tensor(type_name, 5, blocks * QUANT_TYPES[type_name].block)
    for role, num_rows in (("int8", 2), ("int8", 3), ("int8x2", 1), ("f32", 3)):
        check_forms(tensor, role, num_rows, seed=blocks)


@needs_emulator
@pytest.mark.parametrize("type_name", FLOAT_BYTES)
@pytest.mark.parametrize("width", [1, 3, 32, 33, 36, 250, 256, 300, 1100])
def test_cuts_of_k_of_float_types(type_name, width):
    tensor = random_tensor(type_name, 5, width)
    weight, tiles = ReferenceWeight(tensor), kernel_weight(tensor)
    x = np.random.default_rng(width).standard_normal((3, width), dtype=np.float32)
    for form, offset in ((F32[0], 0), (F32[1], 0), (F32[0], 4)):
        acts = Acts(3, width, placed(x, offset), None, None)
        expected, got = nans(3, 5), placed(nans(3, 5))
        reference_linear([(weight, expected)], acts)
        launch_linear(Recorder(), [(tiles, got)], acts, 3, form=form)
        assert_same_bits(got, expected)


@needs_emulator
@pytest.mark.parametrize("num_weight_rows", [1, 16, 63, 65, 150])
def test_numbers_of_weight_rows(num_weight_rows):
    for role, num_rows in (("int8", 2), ("int8", 67), ("int8x2", 35), ("f32", 3)):
        check_forms(random_tensor("Q4_K", num_weight_rows, 512), role, num_rows)


@needs_emulator
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("type_name", ["Q3_K", "Q5_1"])
def test_the_order_of_threads_changes_nothing(type_name, seed):
    for role, num_rows in (("int8", 2), ("int8", 11), ("f32", 3)):
        check_forms(random_tensor(type_name, 21, 1280), role, num_rows, seed)


def test_forms_are_chosen_by_the_rows_of_a_launch():
    assert [choose_form("int8", n) for n in (1, 2, 3, 8, 9, 64, 65, 512)] == [
        *(DOT, DOT, MMA[0], MMA[0], MMA[1], MMA[1], TILED, TILED)
    ]
    assert [choose_form("int8x2", n) for n in (1, 2, 4, 5, 32, 33)] == [
        *(DOT, MMA[0], MMA[0], MMA[1], MMA[1], TILED)
    ]
    assert [choose_form("f32", n) for n in (1, 8, 9, 512)] == [F32[0], F32[0], F32[1], F32[1]]


def test_wrong_arguments_are_refused():
    weight = kernel_weight(random_tensor("Q8_0", 20, 352))
    acts = Acts.empty(2, 352, [weight])
    with pytest.raises(MismatchError, match="expected contiguous"):
        linear(None, [(weight, nans(2, 21))], acts)
    with pytest.raises(MismatchError, match="at least 3"):
        linear(None, [(weight, nans(3, 20))], acts)
    with pytest.raises(MismatchError, match="one out"):
        linear(None, [(weight, nans(2, 20))] * 2, acts, add=nans(2, 20))
    for wrong in (0, 9):
        with pytest.raises(MismatchError, match=f"{wrong} pairs"):
            linear(None, [(weight, nans(2, 20))] * wrong, acts)
    moved = type(acts.first)(placed(acts.first.q, 4), placed(acts.first.d), placed(acts.first.sums))
    with pytest.raises(MismatchError, match="multiple of 16"):
        linear(None, [(weight, nans(2, 20))], Acts(2, 352, None, moved, None))
