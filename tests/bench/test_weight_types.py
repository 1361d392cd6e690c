"""The table of weight types: what it times is checked, cold and of one core."""

import json

import numpy as np
import pytest
from levels import LEVELS

from specrt.bench import weight_types
from specrt.bench.__main__ import main
from specrt.bench.cases import TYPES, LinearCase
from specrt.bench.timing import WrongResultError
from specrt.bench.weight_types import checked_copies, measure, show_speeds
from specrt.host import HostOps

SHAPE = (24, 512)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(weight_types, "MATRIX", SHAPE)
    monkeypatch.setattr(weight_types, "largest_cache", lambda: 10_000)


def test_copies_are_distinct_and_more_than_the_caches_hold(monkeypatch):
    made = []
    weight = HostOps.weight
    monkeypatch.setattr(
        HostOps, "weight", lambda self, tensor, *rest: made.append(tensor) or weight(self, tensor)
    )
    cases = [LinearCase("Q4_0", *SHAPE, rows) for rows in (1, 4)]
    found = checked_copies(HostOps(1), cases)
    tensor_bytes = 24 * 512 // 32 * 18
    assert len(made) == -(-40_000 // tensor_bytes) == 6
    assert len({one.raw.ctypes.data for one in made}) == 6
    assert [len(calls) for calls in found] == [6, 6]
    assert found[0][0].num_bytes == tensor_bytes


@pytest.mark.parametrize("broken", ["first", "copy"])
def test_a_wrong_product_has_no_speed(monkeypatch, broken):
    linear_call = weight_types.linear_call
    calls = []

    def wrong(*arguments):
        call = linear_call(*arguments)
        calls.append(call)
        if (len(calls) == 1) != (broken == "first"):
            return call
        return type(call)(
            call.op, call.run, lambda: [array + np.float32(1) for array in call.results()], 1
        )

    monkeypatch.setattr(weight_types, "linear_call", wrong)
    message = "differs from the reference" if broken == "first" else "a copy of its matrix"
    with pytest.raises(WrongResultError, match=message):
        checked_copies(HostOps(1), [LinearCase("Q8_0", *SHAPE, 1)])


def test_every_type_has_a_speed_at_every_level():
    host = {level: HostOps(1, level) for level in LEVELS}
    speeds = list(measure(host, TYPES, seconds=1e-6))
    assert len(speeds) == len(TYPES) * len(LEVELS) * len(weight_types.ROWS)
    for one in speeds:
        assert one.gigabytes_per_second > 0 and one.rounds == weight_types.LEAST_ROUNDS
        ratio = one.gigaproducts_per_second / one.gigabytes_per_second
        assert ratio == pytest.approx(one.rows / one.bytes_per_weight)
    (bytes_of_q4_0,) = {
        (one.bytes_per_weight, one.packed_bytes_per_weight) for one in speeds if one.type == "Q4_0"
    }
    packed = HostOps(1).weight(weight_types.random_tensor("Q4_0", *SHAPE)).tiles.nbytes
    assert bytes_of_q4_0 == (18 / 32, packed / (SHAPE[0] * SHAPE[1]))


def test_a_type_that_was_interrupted_has_no_line(capsys):
    speeds = list(measure({"portable": HostOps(1, "portable")}, ["Q4_0", "Q8_0"], seconds=1e-6))
    show_speeds(speeds[:-1], ["portable"])
    printed = capsys.readouterr().out
    assert "Q4_0" in printed and "Q8_0" not in printed and "portable T=8" in printed


def test_the_command(tmp_path, capsys):
    file = tmp_path / "types.json"
    flags = ["--types", "Q4_0,F16", "--level", "portable", "--seconds", "0.001"]
    assert main(["ops", *flags, "--json", str(file)]) == 0
    assert "Q4_0" in capsys.readouterr().out
    saved = json.loads(file.read_text())
    assert saved["complete"] and saved["machine"]["threads"] == 1
    assert [(one["type"], one["rows"]) for one in saved["results"]] == [
        (kind, rows) for kind in ("Q4_0", "F16") for rows in (1, 4, 8)
    ]


def test_all_types_are_meant_without_names(monkeypatch):
    asked = []
    monkeypatch.setattr(
        weight_types, "measure", lambda host, kinds, seconds: asked.append(kinds) or iter([])
    )
    assert main(["ops", "--types"]) == 0
    assert asked == [list(TYPES)]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--types", "Q9"], "expected some of Q4_0"),
        (["--types", "--op", "linear"], "leave --op and --threads out"),
        (["--types", "--threads", "2"], "leave --op and --threads out"),
        (["--types", "--level", "nothing"], "portable"),
        (["--types", "--device", "cuda"], "are of the CPU"),
    ],
)
def test_wrong_arguments_are_one_line_and_exit_2(capsys, flags, message):
    assert main(["ops", *flags]) == 2
    captured = capsys.readouterr()
    assert message in captured.err and captured.out == ""
