"""moe: bit for bit what linear and glu make of each expert, however rows are routed."""

import numpy as np
import pytest
from accuracy import assert_accurate
from emulated import needs_emulator
from expert_data import (
    ROUTINGS,
    Mixture,
    all_to_the_same,
    at_random,
    buffer_of,
    composed,
    prepared,
    routed_on,
    shared_added,
)
from rows import assert_same_bits, hostile_rows

from specrt.errors import MismatchError, UnsupportedError
from specrt.experts import Experts
from specrt.host import HostOps, available_levels
from specrt.kernels import KernelOps
from specrt.kernels.emulator import Emulator
from specrt.reference import ReferenceOps

MIXTURES = [
    Mixture(("Q4_K", "Q4_K", "Q6_K"), 5, 2, 256, 512),
    Mixture(("Q8_0", "Q4_0", "Q8_0"), 7, 7, 96, 160),
    Mixture(("F16", "F16", "F16"), 6, 3, 24, 75),
    Mixture(("F16", "Q8_0", "BF16"), 37, 1, 33, 96),
    Mixture(("Q6_K", "Q6_K", "F32"), 1, 1, 21, 256),
    Mixture(("Q8_0", "Q8_0", "Q5_1"), 11, 4, 64, 96, "int8x2"),
    Mixture(("Q4_K", "Q4_K", "IQ4_XS"), 3, 2, 256, 256, "f32"),
]
SETS = {"reference": ReferenceOps} | {
    f"{level} {threads}": lambda level=level, threads=threads: HostOps(threads, level)
    for level in available_levels()
    for threads in (1, 3)
}
each_set = pytest.mark.parametrize("make_ops", SETS.values(), ids=SETS)
each_mixture = pytest.mark.parametrize("mixture", MIXTURES, ids=str)


def run(ops, mixture, x, ids, activation="silu", spare=0, **more):
    """out, and which rows went where with which weights."""
    experts = mixture.on(ops)
    acts = prepared(ops, x, experts.weights[:2])
    routed = routed_on(ops, experts, ids, spare)
    out = buffer_of(ops, np.full(x.shape, np.nan, np.float32))
    ops.moe(acts, experts, routed, activation=activation, out=out, **more)
    return out, routed


def check(ops, mixture, num_rows, routing, activation="silu", spare=0):
    rng = np.random.default_rng(num_rows)
    ids = ROUTINGS[routing](num_rows, mixture.num_experts, mixture.num_used, rng)
    x = hostile_rows(num_rows, mixture.width)
    out, routed = run(ops, mixture, x, ids, activation, spare)
    assert_same_bits(out, composed(ops, mixture, x, routed, activation))
    assert np.isfinite(out[:2]).all() and np.isnan(out[2:3]).all()
    return routed


@each_set
@each_mixture
@pytest.mark.parametrize("routing", ROUTINGS)
def test_it_is_the_sum_of_its_experts(make_ops, mixture, routing):
    ops = make_ops()
    for num_rows in (1, 2, 9, 65) if ops.device == "cpu" else (1, 9):
        check(ops, mixture, num_rows, routing, spare=num_rows % 3)


@pytest.mark.parametrize("level", available_levels())
@pytest.mark.parametrize("routing", ROUTINGS)
def test_a_chunk_of_a_prompt(level, routing):
    ops = HostOps(2, level)
    routed = check(ops, Mixture(("Q8_0", "Q8_0", "Q8_0"), 19, 3, 32, 64), 512, routing)
    assert routed.room.num_groups[0] == (3 if routing == "all_to_the_same" else 19)


@each_set
@pytest.mark.parametrize("activation", ["silu", "gelu_tanh"])
def test_a_shared_expert_and_what_is_added(make_ops, activation):
    ops, mixture = make_ops(), MIXTURES[1]
    rng = np.random.default_rng(1)
    x = rng.standard_normal((9, mixture.width), dtype=np.float32)
    shared, add = (buffer_of(ops, rng.standard_normal(x.shape, dtype=np.float32)) for _ in "sa")
    gate = buffer_of(ops, 3 * rng.standard_normal((9, 1), dtype=np.float32))
    ids = at_random(9, mixture.num_experts, mixture.num_used, rng)
    out, routed = run(ops, mixture, x, ids, activation)
    mixed, _ = run(ops, mixture, x, ids, activation, shared=shared, shared_gate=gate)
    assert_same_bits(mixed, shared_added(ops, out, shared, gate))
    both, _ = run(ops, mixture, x, ids, activation, shared=shared, shared_gate=gate, add=add)
    assert_same_bits(both, mixed + add)
    alone, _ = run(ops, mixture, x, ids, activation, add=add)
    assert_same_bits(alone, out + add)
    acts = prepared(ops, x, mixture.on(ops).weights[:2])
    ops.moe(acts, mixture.on(ops), routed, activation=activation, out=add, add=add)
    assert_same_bits(add, alone)  # out may be add


@each_set
@each_mixture
def test_a_row_alone_equals_itself_among_others(make_ops, mixture):
    ops = make_ops()
    num_rows = 65 if ops.device == "cpu" else 9
    x = hostile_rows(num_rows, mixture.width)
    ids = at_random(num_rows, mixture.num_experts, mixture.num_used, np.random.default_rng(7))
    experts = mixture.on(ops)
    together, routed = run(ops, mixture, x, ids)
    for rows in (slice(0, 1), slice(5, 6), slice(num_rows - 1, num_rows), slice(3, 7)):
        few = routed_on(ops, experts, ids[rows])
        few.weights[:] = routed.weights[rows]
        out = buffer_of(ops, np.full((len(few.ids), mixture.width), np.nan, np.float32))
        acts = prepared(ops, x[rows], experts.weights[:2])
        ops.moe(acts, experts, few, activation="silu", out=out)
        assert_same_bits(out, together[rows])


def test_against_the_oracle():
    mixture = Mixture(("F32", "F32", "F32"), 6, 3, 100, 75)
    rng = np.random.default_rng(2)
    x = rng.standard_normal((7, 75), dtype=np.float32)
    ids = at_random(7, 6, 3, rng)
    baseline, routed = run(ReferenceOps(), mixture, x, ids)
    gate, up, down = (t.raw.view(np.float32).astype(np.float64) for t in mixture.tensors())
    exact = np.zeros((7, 75))
    for row, rank in np.ndindex(ids.shape):
        e = ids[row, rank]
        g, u = gate[e] @ x[row], up[e] @ x[row]
        exact[row] += routed.weights[row, rank] * (down[e] @ (g / (1 + np.exp(-g)) * u))
    for level in available_levels():
        assert_accurate(run(HostOps(1, level), mixture, x, ids)[0], baseline, exact)


def emulated(seed=0):
    """Subnormal numbers are kept, as NumPy does where it adds up what is expected."""
    return KernelOps(Emulator(seed, flush=False))


@needs_emulator
@each_mixture
@pytest.mark.parametrize("routing", ROUTINGS)
def test_the_kernels_give_the_sum_of_the_experts(mixture, routing):
    for num_rows in (1, 3, 17):
        check(emulated(num_rows), mixture, num_rows, routing, spare=num_rows % 2)


@needs_emulator
@pytest.mark.parametrize("routing", ROUTINGS)
def test_the_kernels_read_an_expert_once_for_sixteen_rows(routing):
    mixture = Mixture(("Q8_0", "Q8_0", "Q8_0"), 300, 3, 32, 64)
    routed = check(emulated(), mixture, 65, routing)
    counts = np.bincount(routed.ids.reshape(-1))
    assert routed.room.tasks[0] == (-(-counts // 16)).sum()


@needs_emulator
def test_the_kernels_rows_stand_alone_and_what_is_added_is():
    mixture = Mixture(("Q8_0", "Q4_0", "Q8_0"), 9, 4, 96, 160)
    rng = np.random.default_rng(4)
    x = hostile_rows(33, mixture.width)
    ids = at_random(33, mixture.num_experts, mixture.num_used, rng)
    shared, add = (rng.standard_normal(x.shape, dtype=np.float32) for _ in "sa")
    gate = 3 * rng.standard_normal((33, 1), dtype=np.float32)
    plain, routed = run(emulated(), mixture, x, ids)
    for first, end in ((0, 1), (5, 6), (32, 33), (3, 5), (9, 16), (0, 33)):
        ops, rows = emulated(end), slice(first, end)
        experts = mixture.on(ops)
        few = routed_on(ops, experts, ids[rows])
        few.weights[:] = routed.weights[rows]
        parts = [buffer_of(ops, part[rows]) for part in (shared, add, gate)]
        out = buffer_of(ops, np.full((end - first, mixture.width), np.nan, np.float32))
        acts = prepared(ops, x[rows], experts.weights[:2])
        ops.moe(acts, experts, few, activation="silu", out=out)
        assert_same_bits(out, plain[rows])
        ops.moe(
            acts, experts, few,
            activation="silu", out=parts[1], add=parts[1], shared=parts[0], shared_gate=parts[2],
        )  # fmt: skip
        mixed = shared_added(ops, plain[rows], parts[0], parts[2])
        assert_same_bits(parts[1], mixed + add[rows])


@pytest.mark.parametrize(
    "make_ops", [lambda: HostOps(1), pytest.param(emulated, marks=needs_emulator)]
)
def test_wrong_arguments_are_refused(make_ops):
    ops, mixture = make_ops(), Mixture(("Q8_0", "Q8_0", "Q8_0"), 4, 2, 32, 64)
    experts = mixture.on(ops)
    x = np.ones((3, 64), np.float32)
    acts = prepared(ops, x, experts.weights[:2])
    ids = all_to_the_same(3, 4, 2, None)
    routed, out = routed_on(ops, experts, ids), buffer_of(ops, x)

    def refused(error, match, *, out=out, routed=routed, experts=experts, acts=acts, **more):
        with pytest.raises(error, match=match):
            ops.moe(acts, experts, routed, **{"activation": "silu", "out": out} | more)

    refused(UnsupportedError, "relu", activation="relu")
    refused(MismatchError, "both or neither", shared=out)
    refused(MismatchError, "both or neither", shared_gate=out)
    refused(MismatchError, "shared_gate", shared=out, shared_gate=out)
    refused(MismatchError, "moe: out", out=out[:, :32])
    refused(MismatchError, "moe: add", add=out[:2])
    refused(MismatchError, "ids", routed=routed.rows(2))
    refused(MismatchError, "1 to all", experts=Experts(*experts.weights, 5))
    refused(MismatchError, "gate, up and down", experts=Experts(*experts.weights[::-1], 2))
    fewer = Mixture(mixture.types, 3, 2, 32, 64).on(ops)
    refused(MismatchError, "experts", experts=Experts(experts.gate, experts.up, fewer.down, 2))
    small = routed_on(ops, experts, ids[:1]).room
    refused(MismatchError, "room|acts of", routed=type(routed)(routed.ids, routed.weights, small))
    refused(MismatchError, "acts of", acts=prepared(ops, x[:, :32].copy(), experts.weights[2:]))


@pytest.mark.parametrize("make_ops", [ReferenceOps, lambda: HostOps(1), emulated])
def test_a_tensor_that_is_no_stack_is_refused(make_ops):
    tensor = MIXTURES[1].tensors()[0]
    flat = type(tensor)("w", tensor.shape[1:], tensor.type, tensor.raw[0])
    with pytest.raises(MismatchError, match=r"\[E, N, K\]"):
        make_ops().expert_weight(flat)
