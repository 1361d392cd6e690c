"""Faults put into the kernels of a block's candidates: the emulator, or the values, tell each."""

import pytest
from emulated import broken, needs_emulator
from ops.rows import assert_same_bits

from specrt.bench.cases import LatticeCase, MarkovCase
from specrt.bench.op_cases import OPS
from specrt.kernels import KernelOps
from specrt.kernels.emulator import Emulator, KernelError

pytestmark = needs_emulator

CASES = {
    "lattice": LatticeCase("Q8_0", 40, 160, 3, 17),
    "markov": MarkovCase("Q8_0", 40, 96, 44, 3),
}


def results_of(op, device):
    return OPS[op].bind(KernelOps(device), CASES[op]).results()


FAULTS = {
    "no barrier before the sums": (
        *("lattice", "        __syncthreads();\n#pragma", "#pragma", "no barrier between"),
    ),
    "no barrier behind the sums": (
        *("lattice", "        }\n        __syncthreads();", "        }", "no barrier between"),
    ),
    "a candidate behind the last": ("lattice", "|| c >= k", "", "outside"),
    "an id behind the last": (
        *("lattice", "decodes_after = first_after + own < k", "decodes_after = true", "outside"),
    ),
    "the lanes where the keys were": (
        *("markov", "    __syncthreads(); /* the keys were read */\n", "", "no barrier between"),
    ),
    "a row behind the last": (
        *("markov", "block.row == block.num_rows", "block.row > block.num_rows", "outside"),
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_emulator_names_the_line(tmp_path, fault):
    op, right, wrong, message = FAULTS[fault]
    with pytest.raises(KernelError, match=message) as caught:
        results_of(op, broken(tmp_path, f"{op}.cu", right, wrong))
    assert ".cu" in str(caught.value)


@pytest.mark.parametrize(
    ("op", "right", "wrong"),
    [
        ("lattice", "names ? load(names + found) : found", "found"),
        ("lattice", "block.id(row - 1,", "block.id(row,"),
        ("lattice", "block.gates + row * width", "block.gates"),
        ("lattice", "blockIdx.y) % tiles", "blockIdx.y) / tiles"),
        ("markov", "block.names ? load(block.names + found) : found", "found"),
        ("markov", "block.row == 0", "true"),
        ("markov", "load(behind + token.width)", "0.0f"),
        ("markov", "c.hidden + place * c.hidden_width", "c.hidden"),
    ],
)
def test_the_values_are_wrong(tmp_path, op, right, wrong):
    found = results_of(op, broken(tmp_path, f"{op}.cu", right, wrong))
    with pytest.raises(AssertionError, match="differ"):
        for got, expected in zip(found, results_of(op, Emulator()), strict=True):
            assert_same_bits(got, expected)
