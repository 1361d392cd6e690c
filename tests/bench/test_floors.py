"""Steps and a prefill beside their floors, and the command on a tiny model."""

import json

import numpy as np
import pytest

from specrt.bench import floor_steps, floors
from specrt.bench.__main__ import main
from specrt.bench.floor_results import bounds_of, judged, prefilled, rates_of
from specrt.bench.floor_steps import FloorSteps, SpeedKey, StepKey, Without
from specrt.bench.timing import WrongResultError
from specrt.bench.touched import touched_by
from specrt.gguf.reader import open_gguf
from specrt.host import HostOps
from specrt.models.decoder import Decoder
from tests.models_on_disk import golden_path
from tests.tiny_model import LAYERS, write_tiny_model


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write_tiny_model(tmp_path_factory.mktemp("tiny") / "tiny.gguf")


@pytest.fixture(autouse=True)
def small_cache(monkeypatch):
    monkeypatch.setattr(floor_steps, "largest_cache", lambda: 1 << 18)


def rounds_and_amounts(gguf, cached):
    """Bytes of a step at 1 byte a second and less, products at one for ever."""
    amounts = {
        SpeedKey(what, threads): 100
        for threads in (2, 1)
        for what in ("memory", "as much as a step", "integers", "floats")
    }
    slow, fast = {}, {}
    for key in amounts:
        slow[key] = {"memory": 100.0, "as much as a step": 200.0}.get(key.what, 1e-9)
        fast[key] = slow[key] / 2
    for one, factor in ((slow, 3.0), (fast, 2.0)):
        num_bytes = sum(part.num_bytes for part in touched_by(gguf, "f16", cached, 1).values())
        seconds = num_bytes / (100 / one[SpeedKey("memory", 2)])
        for mode in ("greedy", "logits", "without head", "without attention"):
            one[StepKey(1, cached, mode)] = factor * seconds
    return [slow, fast], amounts


def test_a_round_is_held_to_the_speed_of_its_own(path):
    gguf = open_gguf(path)
    rounds, amounts = rounds_and_amounts(gguf, 20)
    assert rates_of(rounds, amounts).num_bytes.tolist() == [1.0, 2.0]
    steps, parts = judged(gguf, "f16", rounds, amounts, {1: 2.5})
    assert [(step.mode, step.bar) for step in steps] == [("greedy", 2.5), ("logits", None)]
    factor = steps[0].factor
    assert (factor.median, factor.low, factor.high) == pytest.approx((2.5, 2.0, 3.0))
    assert steps[0].least_factor == pytest.approx(2.0)
    assert {part.part: part.ms for part in parts}["head"] == 0
    (bound,) = bounds_of(steps)
    assert bound.holds and bound.at_most and "bytes floors" in bound.name


def test_behind_many_tokens_the_floor_is_the_roofline(path):
    gguf = open_gguf(path)
    rounds, amounts = rounds_and_amounts(gguf, 600)
    steps, _ = judged(gguf, "f16", rounds, amounts, {})
    assert {step.floor for step in steps} == {"roofline"}


def test_a_prefill_is_held_to_the_products_of_its_own_round():
    """All matrices but the head, whose logits it does not compute; no step is made of it."""
    gguf = open_gguf(golden_path("llama-quant"))
    rounds, amounts = rounds_and_amounts(gguf, 20)
    matrices = sum(
        tensor.shape[0] * tensor.shape[1]
        for name, tensor in gguf.tensors.items()
        if tensor.type.is_quantized and name not in ("token_embd.weight", "output.weight")
    )
    assert matrices > 0
    for one, rate, share in zip(rounds, (4e6, 8e6), (0.25, 0.5), strict=True):
        one[SpeedKey("memory", 2)] = 1e-9
        one[SpeedKey("integers", 2)] = 100 / rate
        one[StepKey(48, 0, "prefill")] = 48 * matrices / (rate * share)
    found = prefilled(gguf, "f16", rounds, amounts)
    assert (found.tokens, found.int_products) == (48, 48 * matrices)
    share, giga = found.peak_share, found.int_giga_per_second
    assert (share.low, share.median, share.high) == pytest.approx((0.25, 0.375, 0.5))
    assert (giga.low, giga.high) == pytest.approx((0.001, 0.004))
    milliseconds = 48 * matrices / 1e3  # at 1e6 products a second
    assert found.ms.high == pytest.approx(milliseconds)
    assert found.tokens_per_second.low == pytest.approx(48e3 / milliseconds)
    assert (found.factor.low, found.factor.high) == pytest.approx((2, 4), rel=1e-4)
    assert found.roofline_ms == pytest.approx(milliseconds * (1 / 4 + 1 / 8) / 2, rel=1e-4)
    steps, parts = judged(gguf, "f16", rounds, amounts, {})
    assert {one.rows for one in (*steps, *parts)} == {1}


def test_a_prefill_begins_with_nothing_and_may_take_several_chunks(path, monkeypatch):
    steps = FloorSteps(open_gguf(path), HostOps(1), 128, "f16", [8], [1, 4], 100)
    chunks, prefill = [], Decoder.prefill

    def noted(self, sequence, tokens, *arguments):
        for kept in prefill(self, sequence, tokens, *arguments):
            chunks.append((kept.start_pos, len(kept.tokens)))
            yield kept

    monkeypatch.setattr(Decoder, "prefill", noted)
    assert all(one[StepKey(100, 0, "prefill")] > 0 for one in steps.rounds(2))
    assert chunks == [(0, 64), (64, 32), (96, 4)] * 3


def test_a_prefill_that_depends_on_its_chunks_has_no_time(path, monkeypatch):
    steps = FloorSteps(open_gguf(path), HostOps(1), 128, "f16", [8], [1, 4], 100)
    steps.check()
    export = Decoder.export_state

    def wrong(self, sequence):
        state = export(self, sequence)
        state["v1"][-1] += sequence.cursor.cache_len == 100 and next(calls)
        return state

    calls = iter([0, 1])
    monkeypatch.setattr(Decoder, "export_state", wrong)
    with pytest.raises(WrongResultError, match="prefill of 100 tokens"):
        steps.check()


def test_an_op_set_without_an_op_leaves_its_output_as_it_was(path):
    ops = HostOps(1)
    without = Without(ops, "copy")
    x, out = (without.buffer((2, 8), np.float32) for _ in range(2))
    x[:] = 3
    with without.record() as program:
        without.copy(x, out=out)
        without.select(x, np.array([1, 0], np.int32), out=x)
    program.run()
    assert (out == 0).all() and program.num_phases == 1


def test_parts_are_left_out_of_the_programs(path):
    gguf = open_gguf(path)
    steps = FloorSteps(gguf, HostOps(1), 64, "f16", [8], [1], 16)
    for _ in steps.rounds(1):
        pass
    phases = {}
    for mode, target in steps._targets.items():
        recorded = [one for key, one in target._programs.recorded.items() if key[1]]
        phases[mode] = recorded[0].program.num_phases
    assert phases["without attention"] <= phases["greedy"] - LAYERS
    assert phases["without head"] < phases["greedy"]


def test_the_command(path, tmp_path, capsys):
    file = tmp_path / "floors.json"
    flags = ["--context", "5,600", "--rows", "1,4", "--rounds", "2", "--threads", "2"]
    longer = write_tiny_model(tmp_path / "longer.gguf", context=1024)
    assert main(["floors", "--model", str(longer), *flags, "--json", str(file)]) == 0
    printed = capsys.readouterr().out
    assert "roofline" in printed and "attention" in printed and "Bounds" in printed
    assert "Prefill" in printed
    saved = json.loads(file.read_text())
    assert saved["complete"] and saved["bench"] == "floors"
    assert len(saved["speeds"]) == 8 and len(saved["parts"]) == 2 * 2 * 3
    assert [(one["rows"], one["cached"], one["floor"]) for one in saved["steps"]][::2] == [
        (1, 5, "bytes"), (4, 5, "bytes"), (1, 600, "roofline"), (4, 600, "roofline"),
    ]  # fmt: skip
    assert [bound["bar"] for bound in saved["bounds"]] == [1.33, 1.8] * 2
    for step in saved["steps"]:
        assert 0 < step["byte_floor_ms"] <= step["roofline_ms"] * 1.0001
        assert step["factor"]["low"] <= step["factor"]["median"] <= step["factor"]["high"]
    assert saved["prefill"]["tokens"] == 512 and saved["prefill"]["int_products"] == 0  # all F16
    assert saved["prefill"]["factor"]["low"] > 0
    assert str(tmp_path) not in file.read_text()


def test_a_prefill_leaves_room_for_a_row_behind_it(path, tmp_path):
    file = tmp_path / "floors.json"
    flags = ["--context", "5", "--rows", "1", "--rounds", "1", "--json", str(file)]
    for number, expected in (("20", 20), ("600", 511)):
        assert main(["floors", "--model", str(path), "--prefill", number, *flags]) == 0
        assert json.loads(file.read_text())["prefill"]["tokens"] == expected


def test_rows_that_depend_on_each_other_have_no_time(path, monkeypatch, capsys):
    verify = Decoder.verify

    def wrong(self, windows, **keywords):
        found = verify(self, windows, **keywords)
        if len(windows[0].tokens) == 4:
            found.ids[0] += 1
        return found

    monkeypatch.setattr(Decoder, "verify", wrong)
    assert main(["floors", "--model", str(path), "--context", "8", "--rounds", "1"]) == 1
    captured = capsys.readouterr()
    assert "other ids than among" in captured.err and captured.out == ""


def test_an_interrupt_keeps_the_rounds_before_it(path, tmp_path, monkeypatch):
    rounds_of = floor_steps.rounds_of

    def interrupted(calls, number):
        yield from rounds_of(calls, 1)
        if number > 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(floor_steps, "rounds_of", interrupted)
    file = tmp_path / "floors.json"
    flags = ["--context", "8", "--rows", "1", "--rounds", "3", "--json", str(file)]
    assert main(["floors", "--model", str(path), *flags]) == 130
    saved = json.loads(file.read_text())
    assert saved["complete"] is False and saved["settings"]["rounds"] == 1
    assert len(saved["steps"]) == 2 and saved["prefill"]["tokens"] == 511


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--context", "510"], "expected at most 512"),
        (["--context", "0"], "expected an integer >= 1"),
        (["--context", ","], "joined by commas"),
        (["--rows", "66"], "at most 65"),
        (["--prefill", "0"], "expected an integer >= 1"),
        (["--bars", "4"], "expected T:F"),
        (["--bars", "4:-1"], "expected a number > 0"),
        (["--json", "no/such/folder/x.json"], "folder that exists"),
        (["--model", "nothing.gguf"], "nothing.gguf"),
        (["--threads", "0"], "--threads"),
        (["--device", "cpu"], "unrecognized"),
    ],
)
def test_wrong_arguments_are_one_line_and_exit_2(path, capsys, flags, message):
    if "--model" not in flags:
        flags = ["--model", str(path), *flags]
    assert main(["floors", *flags]) == 2
    captured = capsys.readouterr()
    assert message in captured.err and captured.out == ""
    assert captured.err.startswith("error: ") and captured.err.count("\n") == 1


def test_bars_and_defaults():
    assert floors.BARS == {1: 1.33, 4: 1.8, 8: 2.8}
    assert floors._bars("1:2, 4:3.5") == {1: 2.0, 4: 3.5}
