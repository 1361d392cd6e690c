"""Ops timed on a GPU, over CuPy's stand-in: a kernel takes a microsecond there."""

import json
import sys
from dataclasses import replace

import numpy as np
import pytest
from emulated import needs_emulator
from fake_cupy import FakeCupy

from specrt.bench import device_cases, device_copies, device_ops
from specrt.bench.__main__ import main
from specrt.bench.cases import AttentionCase, LinearCase, RowsCase
from specrt.bench.device_cases import GROUPS, group
from specrt.bench.device_copies import copies, repeated
from specrt.bench.op_calls import random_tensor
from specrt.bench.op_cases import OPS
from specrt.bench.report import Bound
from specrt.bench.timing import Spread, WrongResultError
from specrt.kernels import KernelOps
from specrt.kernels.cuda import CudaDevice
from specrt.kernels.weights import KernelWeight

pytestmark = needs_emulator

L2 = 4096
PART = 48


@pytest.fixture
def cupy(monkeypatch):
    fake = FakeCupy(l2_bytes=L2)
    monkeypatch.setitem(sys.modules, "cupy", fake)
    monkeypatch.setattr(device_ops, "COPY_ROW", 4096)
    monkeypatch.setattr(device_copies, "PART", PART)
    return fake


def small(case):
    """With sizes that the emulator computes at once."""
    sizes = {"outputs": 112, "vocab": 64, "width": 256, "heads": 6, "kv_heads": 2}
    sizes |= {"head_dim": 32, "length": 130, "num_experts": 3, "num_used": 2, "hidden": 256}
    return replace(case, **{name: sizes[name] for name in sizes if hasattr(case, name)})


@pytest.fixture
def few(monkeypatch):
    """One small group of each op."""
    groups = {}
    for op, (first, *_) in GROUPS.items():
        chosen = [case for case in first if case.rows in (1, 2, 8)]
        groups[op] = (tuple(map(small, chosen)),)
    monkeypatch.setattr(device_ops, "GROUPS", groups)
    monkeypatch.setattr(device_ops, "LEAST_CALLS", 3)
    return groups


def kernels(op, case):
    """How many a call launches: rows behind 130 positions are merged, the head finds its best,
    experts' rows are grouped, multiplied, gated, multiplied and mixed, drafts prepared and
    projected, the rows of a block by turns prepared and multiplied, and the last one noted."""
    counts = {"attention": 2, "head": 2, "moe": 5, "mtp_project": 2}
    return 2 * case["rows"] + 1 if op == "markov" else counts.get(op, 1)


def test_every_op_is_timed_by_the_devices_clock(cupy, few, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(device_ops, "COPY_SHARE", 0.1)
    file = tmp_path / "ops.json"
    status = main(["ops", "--device", "cuda", "--seconds", "1e-6", "--json", str(file)])
    told, problem = capsys.readouterr()
    assert file.exists(), problem
    saved = json.loads(file.read_text())
    assert set(few) == set(OPS) == {one["op"] for one in saved["results"]}
    assert len(saved["results"]) == sum(len(cases) for (cases,) in few.values())
    speed = saved["copy_gigabytes_per_second"]
    assert speed == pytest.approx(2 * 16 * L2 / 1000)
    for one in saved["results"]:
        count = kernels(one["op"], one["case"])
        time = one["microseconds"]
        assert list(time.values()) == pytest.approx([count] * 3), one
        assert one["rounds"] == device_ops.LEAST_ROUNDS
        assert one["copy_share"] == pytest.approx(one["gigabytes_per_second"] / speed)
        if one["op"] == "linear":
            assert one["cold"] and one["gigabytes_per_second"] == pytest.approx(112 * 144 / 1000)
    assert saved["machine"]["gpu"] == "emulated" and saved["machine"]["l2_bytes"] == L2
    holds = [bound["holds"] for bound in saved["bounds"]]
    assert holds == [True, True, False, True]  # a head of so few outputs is two kernels
    assert status == 1 and "linear Q4_K, T = 8" in told and "GB/s" in told


@pytest.mark.parametrize(("share", "status", "word"), [(0.1, 0, "yes"), (0.2, 1, "no")])
def test_a_missed_bar_is_a_failure(cupy, few, monkeypatch, capsys, share, status, word):
    monkeypatch.setattr(device_ops, "COPY_SHARE", share)
    flags = ["--device", "cuda", "--op", "linear", "--seconds", "1e-6"]
    assert main(["ops", *flags]) == status
    assert word in capsys.readouterr().out.split()


@pytest.mark.parametrize("op", ["attention", "copy", "head", "linear"])
@pytest.mark.parametrize("wrong_copy", [0, 1])
def test_a_wrong_copy_has_no_time(cupy, few, monkeypatch, op, wrong_copy, capsys):
    cupy.l2_bytes = 16384 if op != "copy" else 1024  # so that there are a few copies
    source = device_ops.copies

    def tampered(*arguments):
        found = source(*arguments)
        assert len(found) > 1
        call = found[wrong_copy][1]

        def results():
            arrays = call.results()
            arrays[0][0, 3] *= 1.001
            return arrays

        found[wrong_copy][1] = replace(call, results=results)
        return found

    monkeypatch.setattr(device_ops, "copies", tampered)
    monkeypatch.setattr(CudaDevice, "timed", lambda *_: pytest.fail("timed"))
    monkeypatch.setattr(device_ops, "copy_bandwidth", lambda *_: 1.0)
    assert main(["ops", "--device", "cuda", "--op", op]) == 1
    problem = "a copy of its data" if wrong_copy else "differs from the reference"
    assert problem in capsys.readouterr().err


def test_a_wrong_output_behind_the_part_is_told(cupy):
    ops, cases = KernelOps(CudaDevice()), group(LinearCase("Q8_0", 112, 64, 1))
    (first, *_), *_ = copies(ops, "linear", cases, L2)
    assert first.results()[0].shape == (1, 112)
    launch = CudaDevice.launch

    def tampering(self, file, entry, grid, block, args, *more):
        launch(self, file, entry, grid, block, args, *more)
        if file == "linear":
            out = next(arg for arg in args if getattr(arg, "shape", None) == (1, 112))
            self.assign(out[0, 111:], np.zeros(1, np.float32))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CudaDevice, "launch", tampering)
        with pytest.raises(WrongResultError, match="equal rows"):
            first.results()


@pytest.mark.parametrize("outputs", [16, 48, 64, 112])
def test_a_repeated_matrix_is_that_of_repeated_rows(cupy, outputs):
    ops = KernelOps(CudaDevice())
    tensor = random_tensor("Q6_K", min(outputs, PART), 256)
    got = repeated(ops, ops.weight(tensor), outputs)
    rows = np.resize(np.arange(len(tensor.raw)), outputs)
    whole = replace(tensor, shape=(outputs, 256), raw=tensor.raw[rows])
    expected = KernelWeight(whole, "int8", None, np.array)
    assert got.shape == expected.shape and got.num_tiles == expected.num_tiles
    assert (ops.to_host(got.tiles) == expected.tiles).all()


def test_there_are_copies_enough_for_the_cache_or_none(cupy):
    ops = KernelOps(CudaDevice())
    cases = group(AttentionCase("q8_0", 4, 2, 32, 130, 1))
    found = copies(ops, "attention", cases, 20_000)
    assert len(found[0]) == len(cases) == 2
    num_bytes = found[0][0].num_bytes
    assert num_bytes == 2 * 130 * 2 * 34
    assert (len(found) - 1) * num_bytes < 4 * 20_000 <= len(found) * num_bytes
    assert len(copies(ops, "select", group(RowsCase(32, 1)), 20_000)) == 1


def timed(op, kind, outputs, rows, microseconds, share):
    case = {"type": kind, "outputs": outputs, "width": 64, "rows": rows}
    time = Spread(microseconds, microseconds, microseconds)
    return device_ops.DeviceTime(op, case, time, 1.0, share, True, 5)


def test_bars_are_those_of_the_worst_shape():
    times = [
        timed("linear", "Q4_K", 16, 1, 10.0, 0.8),
        timed("linear", "Q4_K", 16, 8, 11.0, 0.7),
        timed("linear", "Q4_K", 32, 1, 10.0, 0.65),
        timed("linear", "Q4_K", 32, 8, 14.0, 0.5),
        timed("head", "Q6_K", 16, 1, 10.0, 0.9),
    ]
    found = [(bound.name[:11], bound.figure, bound.holds) for bound in device_ops.bounds_of(times)]
    assert found == [
        ("linear Q4_K", 0.65, False),
        ("linear Q4_K", 1.4, False),
        ("head Q6_K, ", 0.9, True),
    ]
    assert isinstance(device_ops.bounds_of(times)[0], Bound)


def test_the_cases_are_large_and_their_matrices_whole_tiles():
    for op in ("linear", "head"):
        for cases in GROUPS[op]:
            assert [case.rows for case in cases] == list(device_cases.ROWS)
            assert cases[0].outputs % 16 == 0 and cases[0].outputs * cases[0].width >= 5120**2


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (["--device", "emulator"], "verify-kernels --device emulator"),
        (["--device", "reference"], "no times"),
        (["--device", "cuda", "--threads", "2"], "of the CPU"),
        (["--device", "cuda", "--op", "none"], "expected some of"),
    ],
)
def test_what_is_refused(cupy, flags, problem, capsys):
    assert main(["ops", *flags]) == 2
    assert problem in capsys.readouterr().err
