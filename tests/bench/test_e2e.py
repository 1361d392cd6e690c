"""The benchmark from end to end on a tiny model: what it prints, saves and refuses."""

import json
import sys
import time

import pytest
from emulated import needs_emulator
from fake_cupy import CUDARuntimeError, FakeCupy, FakeStream

import specrt
from specrt.assets import embedded_model
from specrt.bench import e2e
from specrt.bench.__main__ import main
from specrt.bench.pairs import TURN, pairs, runs
from specrt.bench.prompts import FOLLOW_UPS, Prompt, prompts_for
from specrt.bench.timing import WrongResultError
from specrt.options import SamplingParams
from specrt.speculative.registry import SpeculatorFactory, default_registry
from specrt.speculative.runtime import Runtime
from tests.fakes import ScriptedSpeculator
from tests.tiny_model import write_tiny_model

FEW = ["--tokens", "12", "--pairs", "2", "--ignore-eos", "--prompts", "fact-primes"]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return str(write_tiny_model(tmp_path_factory.mktemp("tiny") / "tiny.gguf"))


def strings(value):
    if isinstance(value, dict):
        yield from value
        for item in value.values():
            yield from strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from strings(item)
    elif isinstance(value, str):
        yield value


def test_one_prompt(path, tmp_path, capsys):
    file = tmp_path / "out.json"
    flags = ["--model", path, *FEW, "--json", str(file), "--spec-draft", "3", "--threads", "1"]
    assert main(["e2e", *flags]) == 0
    printed = capsys.readouterr().out
    assert "fact-primes" in printed and "peak memory" in printed
    saved = json.loads(file.read_text())
    assert saved["complete"] is True
    assert saved["model"]["file"] == "tiny.gguf" and saved["model"]["bytes"] > 0
    assert saved["machine"]["threads"] == 1
    assert saved["settings"]["spec"]["num_draft"] == 3
    assert (saved["settings"]["kv_type"], saved["settings"]["device"]) == ("f16", "cpu")
    (result,) = saved["results"]
    assert (result["prompt"], result["turn"], result["tokens"]) == ("fact-primes", 1, 12)
    assert result["pairs"] == 2 and result["cached_tokens"] == 0
    assert result["ratio"]["low"] <= result["ratio"]["median"] <= result["ratio"]["high"]
    assert result["plain"]["time_to_first_token_ms"] > result["plain"]["prefill_ms"] > 0
    assert saved["totals"]["tokens"] == 24
    assert saved["launches_per_step"] is None
    (prediction,) = saved["predictions"]
    assert prediction["prompt"] == "fact-primes" and prediction["ratio"] > 0
    assert [bound["bar"] for bound in saved["bounds"]] == [0.92]
    assert not [text for text in strings(saved) if "/" in text.replace("tok/s", "")]


@needs_emulator
@pytest.mark.parametrize("device", ["cuda", "emulator"])
def test_the_launches_of_a_greedy_step_are_told(path, tmp_path, capsys, monkeypatch, device):
    """One graph on a GPU; on the emulator, which has no graphs, all of its kernels."""
    monkeypatch.setitem(sys.modules, "cupy", FakeCupy())
    file = tmp_path / "out.json"
    flags = [
        "e2e",
        "--model",
        path,
        *FEW,
        "--device",
        device,
        "--context",
        "96",
        "--json",
        str(file),
    ]
    assert main([*flags, "--tokens", "2", "--pairs", "1"]) == 0
    launches = json.loads(file.read_text())["launches_per_step"]
    assert launches == 1 if device == "cuda" else launches > 10
    assert f"launches per plain greedy step {launches:g}" in capsys.readouterr().out


@needs_emulator
@pytest.mark.parametrize(
    ("budget", "fails", "status"), [(256, True, 1), (256, False, 0), (0, True, 0)]
)
def test_one_launch_per_greedy_step_is_a_bound_where_there_are_graphs(
    path, tmp_path, capsys, monkeypatch, budget, fails, status
):
    def begin_capture(stream, mode):
        raise CUDARuntimeError("cudaErrorStreamCaptureUnsupported")

    monkeypatch.setitem(sys.modules, "cupy", FakeCupy())
    if fails:
        monkeypatch.setattr(FakeStream, "begin_capture", begin_capture)
    file = tmp_path / "out.json"
    flags = [
        "e2e",
        "--model",
        path,
        *FEW,
        "--device",
        "cuda",
        "--context",
        "96",
        "--json",
        str(file),
    ]
    flags += ["--graph-budget", str(budget), "--tokens", "2", "--pairs", "1"]
    assert main(flags) == status
    bounds = json.loads(file.read_text())["bounds"]
    launches = [bound for bound in bounds if bound["name"].startswith("launches")]
    assert [(bound["bar"], bound["holds"]) for bound in launches] == [(1, not fails)] * (budget > 0)
    assert "Bounds" in capsys.readouterr().out


def test_later_turns_of_a_session(path, tmp_path):
    file = tmp_path / "out.json"
    assert main(["e2e", "--model", path, *FEW, "--turns", "3", "--json", str(file)]) == 0
    results = json.loads(file.read_text())["results"]
    assert [result["turn"] for result in results] == [2, 3]
    assert all(result["cached_tokens"] > 0 for result in results)
    assert results[0]["prompt_tokens"] < results[1]["prompt_tokens"]


def test_the_template_is_applied_with_thinking_off(path):
    llm = specrt.load(path, spec="ngram", max_sequences=3, verbose=False)
    prompt = Prompt("p", "prose", ({"role": "user", "content": "hi"},))
    (pair,) = pairs(llm, prompt, SamplingParams(max_tokens=4, ignore_eos=True), "ngram", 1)
    text = llm.tokenizer.decode(pair.spec.completion.prompt_token_ids, skip_special=False)
    assert text.endswith("<think></think>")
    assert FOLLOW_UPS[0] not in text


def test_the_order_alternates(path, monkeypatch):
    llm = specrt.load(path, spec="ngram", max_sequences=3, verbose=False)
    order, slots = [], []

    def noted(sessions, content, params, specs):
        order.append([specs[name] for name in sessions])
        slots.append([session._sequence.slot for session in sessions.values()])
        return runs(sessions, content, params, specs)

    monkeypatch.setattr("specrt.bench.pairs.runs", noted)
    prompt = Prompt("p", "prose", ({"role": "user", "content": "hi"},))
    assert len(list(pairs(llm, prompt, SamplingParams(max_tokens=2), "ngram", 3))) == 3
    assert order == [["none", "ngram"], ["ngram", "none"], ["none", "ngram"]]
    assert slots == [[0, 1]] * 3


def test_both_answers_grow_in_turns(path, monkeypatch):
    llm = specrt.load(path, spec="none", max_sequences=3, verbose=False)
    steps = []
    step = Runtime.step

    def noted(runtime, requests):
        steps.append(requests[0].sequence.slot)
        return step(runtime, requests)

    monkeypatch.setattr(Runtime, "step", noted)
    prompt = Prompt("p", "prose", ({"role": "user", "content": "hi"},))
    params = SamplingParams(max_tokens=20, ignore_eos=True)
    (pair,) = pairs(llm, prompt, params, "none", 1)
    assert steps == [0] * TURN + [1] * 2 * TURN + [0] * TURN + [0] * 4 + [1] * 4
    assert pair.plain.completion.token_ids == pair.spec.completion.token_ids


def test_a_changed_answer_is_exit_1_without_a_time(path, tmp_path, monkeypatch, capsys):
    def wrong(*_):
        raise WrongResultError("p, turn 1: speculation changed token_ids")

    monkeypatch.setattr("specrt.bench.pairs.check_equal", wrong)
    file = tmp_path / "out.json"
    assert main(["e2e", "--model", path, *FEW, "--json", str(file)]) == 1
    captured = capsys.readouterr()
    assert "speculation changed token_ids" in captured.err
    assert captured.out == "" and not file.exists()


def test_an_interrupt_keeps_what_was_measured(path, tmp_path, monkeypatch, capsys):
    def interrupted(*arguments):
        yield from list(pairs(*arguments))[:1]
        raise KeyboardInterrupt

    monkeypatch.setattr(e2e, "pairs", interrupted)
    file = tmp_path / "out.json"
    assert main(["e2e", "--model", path, *FEW, "--json", str(file)]) == 130
    saved = json.loads(file.read_text())
    assert saved["complete"] is False and saved["results"][0]["pairs"] == 1
    assert "fact-primes" in capsys.readouterr().out


def test_an_interrupt_before_the_first_pair(path, tmp_path, monkeypatch, capsys):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(e2e, "pairs", interrupted)
    assert main(["e2e", "--model", path, *FEW, "--json", str(tmp_path / "out.json")]) == 130
    assert capsys.readouterr().out == ""


def test_without_a_model_the_embedded_one_answers_its_own_prompts(tmp_path, capsys):
    file = tmp_path / "out.json"
    flags = ["--tokens", "12", "--pairs", "1", "--threads", "1", "--json", str(file)]
    assert main(["e2e", *flags]) == 0
    saved = json.loads(file.read_text())
    assert saved["model"]["file"] == embedded_model().name
    assert [one["prompt"] for one in saved["results"]] == [one.id for one in prompts_for(None)]
    assert "vector" in capsys.readouterr().out


class SlowToHear(ScriptedSpeculator):
    """Takes 50 ms for the rows of a prompt."""

    def commit(self, kept):
        if len(kept[0].tokens) > 1:
            time.sleep(0.05)


def test_the_drafters_share_of_the_prefill_counts(path):
    registry = default_registry()
    slow = SlowToHear(lambda context: [])
    registry.register(SpeculatorFactory("slow", False, lambda *_: slow))
    llm = specrt.load(path, spec="slow", max_sequences=3, registry=registry, verbose=False)
    prompt = Prompt("p", "prose", ({"role": "user", "content": "hi"},))
    (pair,) = pairs(llm, prompt, SamplingParams(max_tokens=2, ignore_eos=True), "slow", 1)
    assert pair.spec.seconds >= 0.05


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--tokens", "0"], "expected an integer >= 1"),
        (["--pairs", "x"], "expected an integer >= 1"),
        (["--prompts", "nothing"], "expected some of prose-gpu"),
        (["--model", "nothing.gguf"], "nothing.gguf"),
        (["--spec-draft", "65"], "1 to 64"),
        (["--spec-type", "none,else"], "spec type"),
        (["--kv-type", "f8"], "f8"),
        (["--context", "0"], "--context"),
        (["--json", "no/such/folder/x.json"], "folder that exists"),
        (["--synthetic-acceptance"], "expected one argument"),
        (["--synthetic-acceptance", "1.1"], "expected a number from 0 to 1"),
        (["--synthetic-acceptance", "0.5", "--spec-type", "ngram"], "leave --spec-type"),
        (["--synthetic-acceptance", "0.5", "--turns", "2"], "leave --turns out"),
        (["--sweep", "65"], "expected at most 64"),
        (["--sweep", "0"], "expected an integer >= 1"),
        (["--sweep", "--spec-draft", "3"], "leave --spec-draft out"),
        (["nothing"], "unrecognized"),
        (["ops", "--op", "nothing"], "attention"),
        (["ops", "--level", "nothing"], "portable"),
        (["ops", "--seconds", "nan"], "expected a number > 0"),
        (["host", "--calls", "-1"], "expected an integer >= 1"),
        (["governor", "--prompts", "nothing"], "expected some of"),
    ],
)
def test_wrong_arguments_are_one_line_and_exit_2(path, capsys, flags, message):
    if flags[0] not in ("ops", "host", "governor"):
        flags = ["e2e", *([] if "--model" in flags else ["--model", path]), *flags]
    assert main(flags) == 2
    captured = capsys.readouterr()
    assert message in captured.err and captured.out == ""
    assert captured.err.startswith("error: ") and captured.err.count("\n") == 1
