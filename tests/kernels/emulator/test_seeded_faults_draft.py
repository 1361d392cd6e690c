"""Faults put into the kernels of drafters: the emulator, or the values, tell each."""

import pytest
from emulated import broken, needs_emulator
from ops.rows import assert_same_bits

from specrt.bench.cases import BlockConvCase, DraftCase, MtpCase, RingsCase, RowsCase
from specrt.bench.op_cases import OPS
from specrt.kernels import KernelOps
from specrt.kernels.emulator import Emulator, KernelError

pytestmark = needs_emulator

CASES = {
    "block_conv": BlockConvCase(100, 10, 3, 4, add=True),
    "draft_token": DraftCase(9, 5),
    "load_rows": RingsCase(3, 96, 3),
    "mtp_project": MtpCase("Q8_0", 5, 20, 96, 3),
    "scale": RowsCase(333, 1),
    "store_rows": RowsCase(333, 3),
}


def results_of(op, device):
    return OPS[op].bind(KernelOps(device), CASES[op]).results()


FAULTS = {
    "a tap that reaches before the block": (
        *("block_conv", "known < conv.taps ? known : conv.taps", "conv.taps", "outside"),
    ),
    "groups of channels that are none": (
        *("block_conv", "i + k < last ? i + k : last", "4 * (i + k)", "outside"),
    ),
    "a place behind a ring": ("load_rows", "position % ring.length", "position", "outside"),
    "a column that no ring has": ("load_rows", "(i - first)", "i", "outside"),
    "values behind the last": (
        "scale",
        "store4<aligned>(out + i, v, n)",
        "store4<aligned>(out + i, v, 4)",
        "outside",
    ),
    "a logit behind the last": ("draft_token", "i < k ? exp_of", "true ? exp_of", "outside"),
    "no barrier before the warps' gates": (
        *("draft_token", "    __syncthreads();\n    if (threadIdx.x)", "    if (threadIdx.x)"),
        "no barrier between",
    ),
    "a sequence that is one too many": (
        *("draft_token", "b < num_seqs", "b <= num_seqs", "outside"),
    ),
    "sums of both norms in one place": (
        *("mtp_project", "partial + THREADS / 32", "partial", "no barrier between"),
    ),
    "a four behind the last": (
        *("mtp_project", "there = number < 2 * fours", "there = number <= 2 * fours", "outside"),
    ),
    "a lane that leaves before the others": (
        *("mtp_project", "        if (acts.q)", "        if (!there) return;\n        if (acts.q)"),
        "which has ended",
    ),
    "a place behind the ring": (
        *("store_rows", "load(positions + row) % ring", "load(positions + row)", "outside"),
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
        ("block_conv", "dynamic + j * conv.groups", "dynamic"),
        ("block_conv", "(row - j)", "(row)"),
        ("block_conv", "conv.base + static_cast<long long>(j) * conv.width", "conv.base"),
        ("block_conv", "v = added(load4<aligned>(conv.add + start, left), v)", ""),
        ("load_rows", "position % ring.length", "(position + 1) % ring.length"),
        ("load_rows", " + (i - first)", ""),
        ("scale", "v.y, a.y", "v.y, a.x"),
        ("draft_token", "at % ring", "(at + 1) % ring"),
        ("draft_token", "__shfl_sync(0xffffffffu, weight, j)", "weight"),
        ("draft_token", "store(stop, passes ? 0 : 1)", "store(stop, 0)"),
        ("draft_token", "names ? load(names + found) : found", "found"),
        ("mtp_project", "(position - 1) % in.ring", "position % in.ring"),
        ("mtp_project", "second ? in.hidden_norm : in.token_norm", "in.token_norm"),
        ("mtp_project", "scaled(hidden.four(i), hidden_factor)", "scaled(hidden.four(i), 1.0f)"),
        ("mtp_project", "(row + second) * in.width", "row * in.width"),
        ("store_rows", "% ring", "% ring * 0"),
        ("store_rows", "x + row * row_bytes", "x"),
    ],
)
def test_the_values_are_wrong(tmp_path, op, right, wrong):
    found = results_of(op, broken(tmp_path, f"{op}.cu", right, wrong))
    with pytest.raises(AssertionError, match="differ"):
        for got, expected in zip(found, results_of(op, Emulator()), strict=True):
            assert_same_bits(got, expected)
