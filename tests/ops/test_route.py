"""route: a float64 oracle, ties and odd values, every instruction set and the kernel."""

import numpy as np
import pytest
from accuracy import assert_accurate
from emulated import SEEDS, Recorder, needs_emulator, placed
from levels import LEVELS
from rows import assert_same_bits, nans

from specrt._ext.host_ops import Tape
from specrt.errors import MismatchError
from specrt.experts import Routed
from specrt.host.route import route as host_route
from specrt.kernels.route import route as kernel_route
from specrt.reference.route import route

INF = np.inf
SIZES = [(1, 1), (7, 7), (8, 3), (16, 1), (37, 5), (256, 8), (300, 10)]


def on_host(level):
    def run(logits, *, out):
        tape = Tape(level)
        host_route(tape, logits, out=out)
        tape.run()

    return run


def on_kernel(seed=0):
    return lambda logits, *, out: kernel_route(Recorder(seed), logits, out=out)


HOST = {name: on_host(level) for name, level in LEVELS.items()}


def run(form, logits, num_used):
    out = Routed(
        placed(np.full((len(logits), num_used), -7, np.int32)), placed(nans(len(logits), num_used))
    )
    form(placed(logits), out=out)
    return out.ids, out.weights


def oracle(logits, num_used):
    """Ids in order, and weights."""
    x = logits.astype(np.float64)
    ids = np.array([sorted(range(len(r)), key=lambda e, r=r: (-r[e], e))[:num_used] for r in x])
    p = np.exp(x - x.max(axis=1, keepdims=True))
    p = np.take_along_axis(p / p.sum(axis=1, keepdims=True), ids, axis=1)
    return ids, p / np.maximum(p.sum(axis=1, keepdims=True), 2.0**-14)


def check(forms, logits, num_used):
    """All give the oracle's ids, and weights as accurate as the reference's."""
    ids, exact = oracle(logits, num_used)
    baseline = run(route, logits, num_used)
    assert (baseline[0] == ids).all()
    for form in forms:
        got = run(form, logits, num_used)
        assert (got[0] == ids).all()
        assert_accurate(got[1], baseline[1], exact)


@pytest.mark.parametrize(("num_experts", "num_used"), SIZES)
@pytest.mark.parametrize("spread", [0.1, 3.0, 60.0])
def test_against_the_oracle(num_experts, num_used, spread):
    rng = np.random.default_rng(num_experts)
    logits = (spread * rng.standard_normal((17, num_experts))).astype(np.float32)
    check(HOST.values(), logits, num_used)
    first = run(next(iter(HOST.values())), logits, num_used)
    for form in HOST.values():
        assert_same_bits(run(form, logits, num_used)[1], first[1])


@needs_emulator
@pytest.mark.parametrize(("num_experts", "num_used"), SIZES)
def test_the_kernel_against_the_oracle(num_experts, num_used):
    rng = np.random.default_rng(num_experts)
    for spread in (0.1, 3.0, 60.0):
        logits = (spread * rng.standard_normal((9, num_experts))).astype(np.float32)
        check([on_kernel(seed) for seed in SEEDS], logits, num_used)


ODD = {
    "equal": ([2, 2, 2, 2, 2], [0, 1, 2], [1 / 3, 1 / 3, 1 / 3]),
    "zeros of both signs": ([-0.0, -1, 0.0, -0.0, -1], [0, 2, 3], [1 / 3, 1 / 3, 1 / 3]),
    "a NaN is last": ([np.nan, 1, 1, np.nan, 1], [1, 2, 4], [1 / 3, 1 / 3, 1 / 3]),
    "NaNs count as -inf": ([np.nan, -INF, 5, np.nan, -INF], [2, 0, 1], [1, 0, 0]),
    "nothing but NaN": ([np.nan] * 5, [0, 1, 2], [1 / 3, 1 / 3, 1 / 3]),
    "an infinite one": ([1, INF, 2, INF, 3], [1, 3, 4], [0.5, 0.5, 0]),
    "far apart": ([-500, 0, 500, 200, 100], [2, 3, 4], [1, 0, 0]),
}


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("kind", ["reference", *HOST, pytest.param("kernel", marks=needs_emulator)])
def test_odd_values(kind, name):
    form = {"reference": route, "kernel": on_kernel()} | HOST
    logits, ids, weights = ODD[name]
    got = run(form[kind], np.array([logits], np.float32), 3)
    assert got[0].tolist() == [ids]
    np.testing.assert_allclose(got[1], [weights], rtol=3e-7, atol=0)


@pytest.mark.parametrize("kind", ["reference", *HOST, pytest.param("kernel", marks=needs_emulator)])
def test_what_is_chosen_of_many_weighs_at_most_its_share_of_2_to_the_minus_14(kind):
    """Of 2^17 equal experts each has p = 2^-17."""
    form = {"reference": route, "kernel": on_kernel()} | HOST
    got = run(form[kind], np.zeros((1, 2**17), np.float32), 2)
    assert got[0].tolist() == [[0, 1]]
    assert got[1].tolist() == [[2.0**-3, 2.0**-3]]


@pytest.mark.parametrize("kind", [*HOST, pytest.param("kernel", marks=needs_emulator)])
def test_rows_stand_alone(kind):
    form = {"kernel": on_kernel(3)} | HOST
    logits = np.random.default_rng(3).standard_normal((65, 37)).astype(np.float32)
    ids, weights = run(form[kind], logits, 5)
    for rows in (slice(0, 1), slice(3, 4), slice(64, 65), slice(7, 24)):
        got = run(form[kind], logits[rows], 5)
        assert_same_bits(got[0], ids[rows])
        assert_same_bits(got[1], weights[rows])


@pytest.mark.parametrize("launch", [host_route, kernel_route])
def test_wrong_arguments_are_refused(launch):
    target = Tape(0) if launch is host_route else Recorder()
    for ids, weights, match in (
        (np.zeros((2, 9), np.int32), nans(2, 9), "9 of 8 experts"),
        (np.zeros((2, 0), np.int32), nans(2, 0), "0 of 8 experts"),
        (np.zeros((3, 2), np.int32), nans(3, 2), "ids"),
        (np.zeros((2, 2), np.int32), nans(2, 3), "weights"),
        (np.zeros((2, 2), np.int64), nans(2, 2), "ids"),
    ):
        with pytest.raises(MismatchError, match=match):
            launch(target, nans(2, 8), out=Routed(ids, weights))
