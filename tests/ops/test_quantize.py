"""quantize: host and kernel equal the reference, and the reference does what it says."""

import numpy as np
import pytest
from emulated import SEEDS, Recorder, needs_emulator, placed
from levels import LEVELS
from quant_data import random_tensor
from rows import assert_same_bits, both_acts, both_weights, hostile_rows, plain_rows

from specrt._ext.host_ops import Tape
from specrt.acts import Acts
from specrt.errors import MismatchError
from specrt.host.quantize import quantize as host_quantize
from specrt.kernels.quantize import quantize as kernel_quantize
from specrt.reference.quantize import quantize

WEIGHTS = [both_weights(random_tensor("Q8_0", 3, 224), role) for role in ("int8", "int8x2", "f32")]


@pytest.mark.parametrize("level", LEVELS.values(), ids=LEVELS)
@pytest.mark.parametrize("num_rows", [1, 2, 3, 17, 65])
def test_host_equals_reference(level, num_rows):
    x = hostile_rows(num_rows, 224)
    acts = both_acts(level, x, WEIGHTS)
    host_rows = plain_rows(acts.host)
    assert_same_bits(host_rows.x, x)
    assert_same_bits(acts.reference.x, x)
    for side in ("first", "second"):
        for field in ("q", "d", "sums"):
            host, reference = (
                getattr(getattr(a, side), field) for a in (host_rows, acts.reference)
            )
            assert_same_bits(host, reference)


def reference_rows(x):
    acts = Acts.empty(*x.shape, [w.reference for w in WEIGHTS])
    quantize(x, out=acts)
    return acts


def test_codes_scales_and_sums_are_what_they_say():
    x = np.random.default_rng(0).standard_normal((5, 224), dtype=np.float32)
    acts = reference_rows(x)
    blocks = x.reshape(5, 7, 32)
    largest = np.abs(blocks).max(2)
    assert_same_bits(acts.first.d, largest / np.float32(127))
    q = acts.first.q.reshape(5, 7, 32)
    assert (np.abs(q).max(2) == 127).all()
    assert np.abs(q * acts.first.d[..., None] - blocks).max() <= largest.max() / 127 * 0.5001
    assert (acts.first.sums == acts.first.q.reshape(5, 14, 16).sum(2)).all()
    both = (acts.first.q * np.repeat(acts.first.d, 32, 1)) + (
        acts.second.q * np.repeat(acts.second.d, 32, 1)
    )
    assert np.abs(both - x).max() < largest.max() / 127 / 200


def test_special_blocks():
    x = np.ones((1, 224), np.float32)
    x[0, 0:32] = 0
    x[0, 32:64] = 2.0**-65
    x[0, 64:96] = 2.0**-64
    x[0, 100] = np.nan
    x[0, 130] = np.inf
    first = reference_rows(x).first
    assert first.d[0, 0] == first.d[0, 1] == 0 and not first.q[0, :64].any()
    assert first.d[0, 2] > 0 and (first.q[0, 64:96] == 127).all()
    assert np.isnan(first.d[0, 3:5]).all() and not first.q[0, 96:160].any()


def emulate(x, weights, num_rows=None, seed=0, flush=True):
    """What the kernel writes into acts that start as garbage, and its entry."""
    acts = Acts.empty(num_rows or len(x), x.shape[1], [w.host for w in weights])
    for side in (acts.first, acts.second):
        for array in (side.q, side.d, side.sums) if side else ():
            array.view(np.uint8)[:] = 0x77
    device = Recorder(seed, flush)
    kernel_quantize(device, x, out=acts)
    return acts, device.entries[0]


@needs_emulator
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("num_rows", [1, 2, 3, 17, 65])
def test_the_kernel_equals_the_reference(num_rows, seed):
    x = hostile_rows(num_rows, 224, seed)
    x[0, 70:90] = 1e-40  # beside others, and alone
    x[0, 192:] = 2e-39
    reference = reference_rows(x)
    for offset, entry in ((0, "quantize_x4"), (4, "quantize_x1")):
        acts, used = emulate(placed(x, offset), WEIGHTS, seed=seed, flush=bool(offset))
        assert used == entry
        assert_same_bits(acts.x, x)
        for side in ("first", "second"):
            for field in ("q", "d", "sums"):
                got, expected = (getattr(getattr(a, side), field) for a in (acts, reference))
                assert_same_bits(got, expected)


@needs_emulator
def test_the_kernel_writes_the_forms_and_rows_that_are_asked_for():
    x = hostile_rows(9, 224)
    reference = reference_rows(x)
    acts, _ = emulate(x, WEIGHTS[:1], num_rows=13)
    assert acts.x is None and acts.second is None
    assert_same_bits(acts.first.q[:9], reference.first.q)
    assert (acts.first.q[9:] == 0x77).all() and (acts.first.sums[9:] == 0x77777777).all()
    acts, entry = emulate(x, WEIGHTS[2:], num_rows=13)
    assert acts.first is None and entry.startswith("copy")
    assert_same_bits(acts.x[:9], x)


def test_wrong_shapes_are_refused():
    acts = Acts.empty(2, 224, [w.host for w in WEIGHTS])
    for x in (np.zeros((2, 256), np.float32), np.zeros((2, 224)), np.zeros((3, 224), np.float32)):
        with pytest.raises(MismatchError):
            host_quantize(Tape(0), x, out=acts)
        with pytest.raises(MismatchError):
            kernel_quantize(Recorder(), x, out=acts)
    with pytest.raises(MismatchError, match="blocks of 32"):
        Acts.empty(2, 200, [WEIGHTS[0].host])
