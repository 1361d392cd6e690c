"""Faults put into moe and route: the emulator, or the values, tell each."""

import numpy as np
import pytest
from emulated import broken, needs_emulator
from expert_data import ROUTINGS, Mixture, buffer_of, prepared, routed_on
from ops.rows import assert_same_bits

from specrt.kernels import KernelOps
from specrt.kernels.emulator import Emulator, KernelError

pytestmark = needs_emulator

FEW = Mixture(("Q8_0", "Q8_0", "Q8_0"), 7, 3, 32, 64)
MANY = Mixture(("F16", "F16", "F16"), 300, 2, 24, 40)


def run(mixture, num_rows=20):
    """A mixture with all that it takes, over rows that go anywhere."""

    def launch(device):
        ops, rng = KernelOps(device), np.random.default_rng(1)
        experts = mixture.on(ops)
        x, shared, add = rng.standard_normal((3, num_rows, mixture.width), dtype=np.float32)
        ids = ROUTINGS["at_random"](num_rows, mixture.num_experts, mixture.num_used, rng)
        shared, add = buffer_of(ops, shared), buffer_of(ops, add)
        gate, out = buffer_of(ops, rng.random((num_rows, 1), np.float32)), buffer_of(ops, x)
        ops.moe(
            prepared(ops, x, experts.weights[:2]), experts, routed_on(ops, experts, ids),
            activation="silu", out=out, add=add, shared=shared, shared_gate=gate,
        )  # fmt: skip
        return out

    return launch


def run_route(device):
    ops = KernelOps(device)
    experts = Mixture(("F16", "F16", "F16"), 40, 5, 8, 8).on(ops)
    logits = np.random.default_rng(2).integers(-3, 3, (9, 40)).astype(np.float32)
    routed = ops.routed(9, [experts])
    ops.route(buffer_of(ops, logits), out=routed)
    return np.concatenate([routed.ids.astype(np.float32), routed.weights], axis=1)


RACES = {
    "no barrier before the warps' counts are read": (
        "        __syncthreads();\n        int place",
        "        int place",
        FEW,
    ),
    "no barrier before the next experts' counts": (
        "        __syncthreads(); /* before the next experts' sums */\n",
        "",
        MANY,
    ),
}
VALUES = {
    "tasks that are counted short": ("moe.cu", "(count + task_rows - 1)", "count", run(FEW)),
    "counts of one warp alone": ("moe.cu", "warp < thread / 32", "warp < 0", run(MANY)),
    "the first expert's weights": ("moe.cu", "expert * bytes[i]", "0 * bytes[i]", run(FEW)),
    "rows as they come": ("moe.cu", "return sources ?", "return false ?", run(FEW)),
    "results as they come": ("moe.cu", "load(places + pair + r);", "pair + r;", run(FEW)),
    "a shared expert without its gate": (
        "moe.cu", "__fdiv_rn(1.0f, __fadd_rn(1.0f, e))", "1.0f", run(FEW),
    ),
    "the best expert again and again": ("route.cu", "key < last &&", "", run_route),
    "weights that do not add up to one": ("route.cu", "(total, p)", "(p, p)", run_route),
}  # fmt: skip


@pytest.mark.parametrize("fault", RACES)
def test_a_race_is_told(fault, tmp_path):
    right, wrong, mixture = RACES[fault]
    with pytest.raises(KernelError, match="no barrier between"):
        run(mixture)(broken(tmp_path, "moe.cu", right, wrong))


@pytest.mark.parametrize("fault", VALUES)
def test_a_wrong_value_differs(fault, tmp_path):
    file, right, wrong, launch = VALUES[fault]
    try:
        got = launch(broken(tmp_path, file, right, wrong))
    except KernelError:
        return
    with pytest.raises(AssertionError):
        assert_same_bits(got, launch(Emulator()))
