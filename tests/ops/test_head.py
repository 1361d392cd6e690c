"""head: host and kernels against the reference: equal, but for logits with a softcap."""

import numpy as np
import pytest
from emulated import needs_emulator, placed
from levels import LEVELS
from quant_data import Tensor, TypeOf, random_tensor
from rows import (
    assert_same_bits,
    both_acts,
    both_weights,
    host_weight,
    hostile_rows,
    kernel_acts,
    kernel_weight,
    nans,
)

from specrt._ext.host_ops import Tape
from specrt.acts import Acts
from specrt.errors import MismatchError
from specrt.host.head import head as host_head
from specrt.kernels.emulator import Emulator
from specrt.kernels.head import head as kernel_head
from specrt.reference.head import head
from specrt.reference.linear import linear

each_level = pytest.mark.parametrize("level", LEVELS.values(), ids=LEVELS)


def run_host(level, weight, acts, num_rows, logits, softcap=0.0, **more):
    ids = np.full(num_rows, -7, np.int32)
    tape = Tape(level)
    host_head(tape, weight, acts, ids=ids, logits=logits, softcap=softcap, **more)
    tape.run()
    return ids


@each_level
@pytest.mark.parametrize("type_name", ["Q8_0", "Q6_K", "F16"])
@pytest.mark.parametrize("num_rows", [1, 3, 17])
def test_host_equals_reference(level, type_name, num_rows):
    weight = both_weights(random_tensor(type_name, 549, 768))
    acts = both_acts(level, hostile_rows(num_rows, 768), [weight])
    expected, got = nans(num_rows, 549), nans(num_rows, 549)
    expected_ids = np.full(num_rows, -7, np.int32)
    head(weight.reference, acts.reference, ids=expected_ids, logits=expected, softcap=0.0)
    ids = run_host(level, weight.host, acts.host, num_rows, got)
    assert_same_bits(got, expected)
    assert_same_bits(ids, expected_ids)
    assert_same_bits(run_host(level, weight.host, acts.host, num_rows, None), expected_ids)
    plain = nans(num_rows, 549)
    linear([(weight.reference, plain)], acts.reference)
    assert_same_bits(got, plain)
    if num_rows > 2:
        assert ids[2] == 0 and np.isnan(got[2]).all()


@each_level
def test_softcap(level):
    weight = both_weights(random_tensor("Q8_0", 549, 768))
    acts = both_acts(level, hostile_rows(2, 768), [weight])
    exact, got = nans(2, 549), nans(2, 549)
    linear([(weight.reference, exact)], acts.reference)
    expected_ids = np.zeros(2, np.int32)
    expected = nans(2, 549)
    head(weight.reference, acts.reference, ids=expected_ids, logits=expected, softcap=7.5)
    ids = run_host(level, weight.host, acts.host, 2, got, softcap=7.5)
    capped = 7.5 * np.tanh(exact.astype(np.float64) / 7.5)
    error, baseline = np.abs(got - capped).max(), np.abs(expected - capped).max()
    assert error <= 2 * baseline + 1e-6
    assert (ids == np.argmax(got, axis=1)).all()
    assert run_host(level, weight.host, acts.host, 2, None, softcap=7.5).tolist() == ids.tolist()


SCALED = [(0.3, 7.5), (-2.5, 7.5), (3.0, 0.0)]


def scaled_and_capped(exact, scale, softcap):
    values = exact.astype(np.float64) * np.float64(np.float32(scale))
    return softcap * np.tanh(values / softcap) if softcap else values


def check_scaled(run, exact, expected, expected_ids, scale, softcap):
    """By equality without a softcap, else by error; ids are the largest logits'."""
    got = placed(nans(*expected.shape))
    ids = run(got)
    if not softcap:
        assert_same_bits(got, expected)
        assert_same_bits(ids, expected_ids)
    capped = scaled_and_capped(exact, scale, softcap)
    assert np.abs(got - capped).max() <= 2 * np.abs(expected - capped).max() + 1e-6
    assert (ids == np.argmax(got, axis=1)).all()
    assert run(None).tolist() == ids.tolist()


@pytest.mark.parametrize(("scale", "softcap"), SCALED)
@pytest.mark.parametrize("type_name", ["Q8_0", "F16"])
def test_the_scale_comes_before_the_softcap(type_name, scale, softcap):
    weight = both_weights(random_tensor(type_name, 149, 768))
    exact, expected, ids = nans(2, 149), nans(2, 149), np.zeros(2, np.int32)
    acts = both_acts(0, hostile_rows(2, 768), [weight]).reference
    linear([(weight.reference, exact)], acts)
    more = {"scale": scale, "softcap": softcap}
    head(weight.reference, acts, ids=ids, logits=expected, **more)
    capped = scaled_and_capped(exact, scale, softcap)
    np.testing.assert_allclose(expected, capped, rtol=2e-6, atol=1e-6)
    for level in LEVELS.values():
        rows = both_acts(level, hostile_rows(2, 768), [weight]).host

        def run(logits, level=level, rows=rows):
            return run_host(level, weight.host, rows, 2, logits, **more)

        check_scaled(run, exact, expected, ids, scale, softcap)


@needs_emulator
@pytest.mark.parametrize(("scale", "softcap"), SCALED)
@pytest.mark.parametrize("num_rows", [1, 3, 11, 67])
def test_the_kernels_scale(num_rows, scale, softcap):
    for type_name in ("Q8_0", "F16"):
        tensor = random_tensor(type_name, 149, 768)
        weight, x = both_weights(tensor), hostile_rows(2, 768)[np.arange(num_rows) % 2]
        acts = both_acts(0, x, [weight]).reference
        exact, expected = nans(num_rows, 149), nans(num_rows, 149)
        linear([(weight.reference, exact)], acts)
        ids, more = np.zeros(num_rows, np.int32), {"scale": scale, "softcap": softcap}
        head(weight.reference, acts, ids=ids, logits=expected, **more)

        def run(logits, tensor=tensor, acts=acts, more=more):
            return emulate(tensor, acts, num_rows, logits, **more)

        check_scaled(run, exact, expected, ids, scale, softcap)


def float_head(values):
    return Tensor("w", values.shape, TypeOf("F32", 1, 4), values.view(np.uint8))


@each_level
def test_ties_go_to_the_lowest_id_and_nan_never_wins(level):
    values = np.zeros((700, 1), np.float32)
    x = np.ones((1, 1), np.float32)
    cases = {
        (650, 300, 299, 40): 40,
        (699, 256): 256,
        (15, 16): 15,
        (699,): 699,
    }
    for winners, expected in cases.items():
        values[:] = -1
        values[list(winners)] = 2
        values[::7] = np.where(values[::7] == 2, 2, np.nan)
        weight = both_weights(float_head(values))
        acts = both_acts(level, x, [weight])
        assert run_host(level, weight.host, acts.host, 1, None).tolist() == [expected]
        ids = np.zeros(1, np.int32)
        head(weight.reference, acts.reference, ids=ids, logits=None, softcap=0.0)
        assert ids.tolist() == [expected]
    for value in (np.nan, -np.inf):
        weight = both_weights(float_head(np.full((700, 1), value, np.float32)))
        acts = both_acts(level, x, [weight])
        assert run_host(level, weight.host, acts.host, 1, None).tolist() == [0]


def emulate(tensor, reference_acts, num_rows, logits, softcap=0.0, seed=0, **more):
    """The ids that the kernels find."""
    weight = kernel_weight(tensor)
    ids = placed(np.full(num_rows, -7, np.int32))
    acts = kernel_acts(reference_acts, [weight])
    kernel_head(Emulator(seed), weight, acts, ids=ids, logits=logits, softcap=softcap, **more)
    return ids


@needs_emulator
@pytest.mark.parametrize("type_name", ["Q8_0", "Q6_K", "F16"])
@pytest.mark.parametrize("num_rows", [1, 2, 3, 11, 67])
def test_the_kernel_equals_the_reference(type_name, num_rows):
    tensor = random_tensor(type_name, 149, 768)
    weight = both_weights(tensor)
    acts = both_acts(0, hostile_rows(num_rows, 768), [weight]).reference
    expected, got = nans(num_rows, 149), placed(nans(num_rows, 149))
    expected_ids = np.zeros(num_rows, np.int32)
    head(weight.reference, acts, ids=expected_ids, logits=expected, softcap=0.0)
    assert_same_bits(emulate(tensor, acts, num_rows, got, seed=num_rows), expected_ids)
    assert_same_bits(got, expected)
    assert_same_bits(emulate(tensor, acts, num_rows, None), expected_ids)


@needs_emulator
def test_the_kernels_softcap():
    tensor = random_tensor("Q8_0", 149, 768)
    weight = both_weights(tensor)
    acts = both_acts(0, hostile_rows(2, 768), [weight]).reference
    exact, expected, got = nans(2, 149), nans(2, 149), placed(nans(2, 149))
    linear([(weight.reference, exact)], acts)
    head(weight.reference, acts, ids=np.zeros(2, np.int32), logits=expected, softcap=7.5)
    ids = emulate(tensor, acts, 2, got, softcap=7.5)
    capped = 7.5 * np.tanh(exact.astype(np.float64) / 7.5)
    assert np.abs(got - capped).max() <= 2 * np.abs(expected - capped).max() + 1e-6
    assert (ids == np.argmax(got, axis=1)).all()
    assert emulate(tensor, acts, 2, None, softcap=7.5).tolist() == ids.tolist()


@needs_emulator
def test_the_kernels_ties():
    values, x = np.zeros((700, 1), np.float32), np.ones((1, 1), np.float32)
    for winners, expected in (
        ((650, 299, 40), 40),
        ((699, 256), 256),
        ((15, 16), 15),
        ((699,), 699),
    ):
        values[:] = -1
        values[list(winners)] = 0.0
        values[winners[0]] = -0.0  # equal to 0
        values[::7] = np.where(values[::7] == 0, values[::7], np.nan)
        acts = both_acts(0, x, [both_weights(float_head(values))]).reference
        assert emulate(float_head(values), acts, 1, None).tolist() == [expected]
    for value in (np.nan, -np.inf):
        tensor = float_head(np.full((700, 1), value, np.float32))
        acts = both_acts(0, x, [both_weights(tensor)]).reference
        assert emulate(tensor, acts, 1, None).tolist() == [0]


def test_wrong_arguments_are_refused():
    weight = host_weight(random_tensor("Q8_0", 20, 64))
    acts = Acts.empty(2, 64, [weight])
    with pytest.raises(MismatchError, match="ids"):
        host_head(Tape(0), weight, acts, ids=np.zeros(2), logits=None, softcap=0.0)
    with pytest.raises(MismatchError, match="logits"):
        host_head(Tape(0), weight, acts, ids=np.zeros(2, np.int32), logits=nans(2, 19), softcap=0.0)


@pytest.mark.parametrize("scale", [float("nan"), float("inf"), -float("inf"), 1e39])
def test_a_scale_that_is_not_finite_is_refused(scale):
    tensor = random_tensor("Q8_0", 20, 64)
    weight = host_weight(tensor)
    ids, more = np.zeros(2, np.int32), {"logits": None, "softcap": 0.0, "scale": scale}
    acts = Acts.empty(2, 64, [weight])
    with pytest.raises(MismatchError, match="scale"):
        host_head(Tape(0), weight, acts, ids=ids, **more)
    weight = kernel_weight(tensor)
    with pytest.raises(MismatchError, match="scale"):
        kernel_head(Emulator(), weight, kernel_acts(acts, [weight]), ids=ids, **more)
