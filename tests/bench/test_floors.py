"""What a step touches, its floors, and the command on a tiny model."""

import json

import numpy as np
import pytest

from specrt.bench import floor_steps, floors
from specrt.bench.__main__ import main
from specrt.bench.floor_results import bounds_of, judged, rates_of
from specrt.bench.floor_steps import FloorSteps, SpeedKey, StepKey, Without
from specrt.bench.touched import Rates, Touched, touched_by
from specrt.gguf.reader import open_gguf
from specrt.host import HostOps
from specrt.models import load_trunk
from specrt.models.decoder import Decoder
from tests.models_on_disk import golden_path
from tests.tiny_model import FFN, HEAD_DIM, HEADS, KV_HEADS, LAYERS, WIDTH, write_tiny_model

MATRICES = LAYERS * WIDTH * ((2 * HEADS + 2 * KV_HEADS) * HEAD_DIM + 3 * FFN)
NORMS = WIDTH * (2 * LAYERS + 1)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write_tiny_model(tmp_path_factory.mktemp("tiny") / "tiny.gguf")


@pytest.fixture(autouse=True)
def small_cache(monkeypatch):
    monkeypatch.setattr(floor_steps, "largest_cache", lambda: 1 << 18)


def test_what_a_step_touches(path):
    """F16 matrices, F32 norms, and of the embedding the rows' own."""
    gguf = open_gguf(path)
    vocab = gguf.tensors["output.weight"].shape[0]
    parts = touched_by(gguf, "f16", 10, rows=3)
    trunk, head, attention = (parts[name] for name in ("trunk", "head", "attention"))
    assert trunk.num_bytes == 2 * MATRICES + 4 * NORMS + 3 * 2 * WIDTH
    assert head.num_bytes == 2 * vocab * WIDTH
    products = [(part.int_products, part.float_products) for part in (trunk, head)]
    assert products == [(0, 3 * MATRICES), (0, 3 * vocab * WIDTH)]
    read, seen = LAYERS * 2 * 13 * KV_HEADS * HEAD_DIM * 2, 11 + 12 + 13
    assert attention == Touched(
        num_bytes=read,
        packed_bytes=read,
        float_products=LAYERS * 2 * seen * HEADS * HEAD_DIM,
    )


def test_a_tied_head_is_read_once_and_quantised_products_are_integers():
    gguf = open_gguf(golden_path("llama-quant"))
    parts = touched_by(gguf, "q8_0", 0, rows=2)
    read = {name for name in gguf.tensors if name != "rope_freqs.weight"}
    embedding = gguf.tensors["token_embd.weight"]
    whole = sum(gguf.tensors[name].nbytes for name in read)
    rows = 2 * embedding.raw.shape[1]
    if "output.weight" in read:
        whole -= embedding.nbytes
    assert parts["trunk"].num_bytes + parts["head"].num_bytes == whole + rows
    assert parts["trunk"].int_products > 0


def test_packed_bytes_are_those_of_the_weights_that_a_model_reads():
    gguf = open_gguf(golden_path("llama-quant"))
    trunk = load_trunk(gguf, HostOps(1), 64)
    parts = touched_by(gguf, "f16", 0, rows=1)
    vectors = sum(t.shape[0] for name, t in gguf.tensors.items() if len(t.shape) == 1)
    row = gguf.tensors["token_embd.weight"].raw.shape[1]
    assert parts["head"].packed_bytes == trunk.output.tiles.nbytes
    packed = sum(weight.tiles.nbytes for weight in trunk.weights)
    assert "rope_freqs.weight" not in gguf.tensors
    assert parts["trunk"].packed_bytes == packed + 4 * vectors + row


def test_a_window_bounds_what_is_seen():
    gguf = open_gguf(golden_path("gemma3"))
    short, long, longer = (
        touched_by(gguf, "f32", cached, rows=1)["attention"].num_bytes for cached in (0, 40, 41)
    )
    layers = gguf.get("gemma3.block_count", int)
    one_position = short // layers
    window = gguf.get("gemma3.attention.sliding_window", int)
    num_global = (longer - long) // one_position  # only these see one more
    assert 0 < num_global < layers and window < 40
    assert long == one_position * (41 * num_global + window * (layers - num_global))


def test_rows_of_a_window_share_what_they_see():
    gguf = open_gguf(golden_path("gemma3"))
    one, three = (touched_by(gguf, "f32", 40, rows)["attention"] for rows in (1, 3))
    layers = gguf.get("gemma3.block_count", int)
    position = touched_by(gguf, "f32", 0, 1)["attention"].num_bytes // layers
    assert three.num_bytes == one.num_bytes + 2 * layers * position
    assert 3 * one.float_products < three.float_products < 3.5 * one.float_products


def test_the_floor_of_a_part_is_the_longer_of_reading_and_computing():
    rates = Rates(np.array([10.0, 20.0]), np.array([4.0, 4.0]), np.array([2.0, 2.0]))
    assert Touched(100, 999, 8, 4).seconds(rates).tolist() == [10.0, 5.0]
    assert Touched(100, 999, 8, 20).seconds(rates).tolist() == [12.0, 12.0]


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
    steps = FloorSteps(gguf, HostOps(1), 64, "f16", [8], [1])
    for _ in steps.rounds(1):
        pass
    phases = {}
    for mode, target in steps._targets.items():
        recorded = [one for key, one in target._programs.items() if key[1]]
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
    assert str(tmp_path) not in file.read_text()


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
    assert len(saved["steps"]) == 2


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--context", "510"], "expected at most 512"),
        (["--context", "0"], "expected an integer >= 1"),
        (["--context", ","], "joined by commas"),
        (["--rows", "66"], "at most 65"),
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
