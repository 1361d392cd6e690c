"""The benchmark's arithmetic, and that no time is reported for a wrong result."""

import json
from dataclasses import replace

import numpy as np
import pytest

from specrt.bench import e2e, host, ops, timing
from specrt.bench.__main__ import main
from specrt.bench.cases import prompts
from specrt.bench.timing import WrongResultError, is_degenerate
from specrt.errors import OptionError
from specrt.gguf.reader import open_gguf
from specrt.host import HostOps
from specrt.stats import Phases, Stats
from tests.models_on_disk import golden_path
from tests.tiny_model import write_tiny_model


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_tiny_model(tmp_path_factory.mktemp("bench") / "tiny.gguf")


def test_a_cycle_is_degenerate():
    assert is_degenerate([9, 8, *[1, 2, 3] * 22])
    assert is_degenerate([5] * 64)
    assert is_degenerate([*range(32), *range(32)])
    assert not is_degenerate([5] * 63)
    assert not is_degenerate([*[5] * 63, 6])
    assert not is_degenerate([*range(33), *range(31)])
    assert not is_degenerate([1, 2, 3] * 22 + [1, 2, 4])


def test_ratios_are_by_pairs():
    spread = timing.ratios([2.0, 9.0, 4.0], [1.0, 3.0, 4.0])
    assert (spread.least, spread.median, spread.most) == (1.0, 2.0, 3.0)
    assert timing.geometric_mean([1.0, 4.0]) == pytest.approx(2.0)


def test_pairs_are_interleaved_and_swap():
    calls = []
    timing.interleaved(lambda: calls.append("a"), lambda: calls.append("b"), 3)
    assert "".join(calls) == "abbaab"


def test_milliseconds_are_per_step():
    stats = Stats()
    stats.count_step(4, 2)
    stats.count_step(4, 0)
    stats.count_step(0, 0)
    stats.phases = Phases(prefill=7, catch_up=1, draft=3, verify=20, accept=6, plain=5)
    ms = e2e.milliseconds(stats)
    assert ms == {
        "prefill": 7, "catch_up": 1, "plain": 5, "verify": 10,
        "draft": 1, "accept": 2, "rollback": 0, "commit": 0,
    }  # fmt: skip
    assert e2e.milliseconds(Stats())["verify"] == 0


def test_prompts_can_be_chosen():
    every = prompts()
    assert len({prompt.id for prompt in every}) == len(every) >= 10
    assert {"prose", "factual", "edit", "summarize", "json", "code"} == {p.category for p in every}
    assert [p.id for p in prompts(["fact-primes", "prose-gpu"])] == ["prose-gpu", "fact-primes"]
    with pytest.raises(OptionError, match=r"nonsense.*prose-gpu"):
        prompts(["nonsense"])


def test_e2e_prints_and_writes(model, tmp_path, capsys):
    path = tmp_path / "out.json"
    status = main(
        [
            *("--model", str(model), "--prompts", "prose-gpu,fact-primes", "--tokens", "40"),
            *("--pairs", "2", "--turns", "2", "--ignore-eos", "--json", str(path)),
        ]
    )
    out = capsys.readouterr().out
    assert status == 0 and "ids equal in every run; drafter: ngram" in out
    report = json.loads(path.read_text())
    assert report["kind"] == "e2e" and report["model"]["file"] == "tiny.gguf"
    assert str(tmp_path) not in path.read_text()
    rows = {row["name"]: row for row in report["rows"]}
    assert list(rows) == ["prose-gpu", "prose-gpu #2", "fact-primes", "fact-primes #2"]
    for row in rows.values():
        assert row["tokens"] == 40 and row["ratio"]["least"] <= row["ratio"]["median"]
        assert row["name"] in out


def test_e2e_refuses_wrong_ids(model, monkeypatch, capsys):
    real = e2e.conversation

    def wrong(llm, prompt, spec, options):
        turns = real(llm, prompt, spec, options)
        if spec.type != "none":
            completion = turns[0].completion
            ids = [*completion.token_ids[:-1], 0]
            turns[0] = replace(turns[0], completion=replace(completion, token_ids=ids))
        return turns

    monkeypatch.setattr(e2e, "conversation", wrong)
    arguments = ["--model", str(model), "--prompts", "prose-gpu", "--tokens", "8", "--ignore-eos"]
    assert main(arguments) == 1
    captured = capsys.readouterr()
    assert "prose-gpu: token 7" in captured.err and "ratio" not in captured.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--no-spec"], "speculation is off"),
        (["--pairs", "0"], "--pairs = 0"),
        (["--prompts", "nonsense"], "nonsense"),
        (["ops", "--rows", "0"], "--rows = '0'"),
        (["nonsense"], "invalid choice"),
    ],
)
def test_bad_arguments(model, capsys, arguments, message):
    assert main([*arguments, "--model", str(model)]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("name", ["llama-quant", "qwen3-quant", "gemma3"])
def test_every_op_equals_its_reference(name, monkeypatch):
    monkeypatch.setattr(ops, "best_seconds", lambda call: 1.0)
    with open_gguf(golden_path(name)) as gguf:
        cases = list(ops.op_cases(gguf, 3))
        assert {case.op for case in cases} >= {"linear", "head", "attention", "rope_kv", "glu"}
        for case in cases:
            assert ops.measure(case, HostOps(1)).bytes_per_second == case.num_bytes


def test_a_wrong_op_has_no_time():
    with open_gguf(golden_path("llama-quant")) as gguf:
        for case in ops.op_cases(gguf, 2):
            bound = case.bind(HostOps(1), 2**31)
            bound.call()
            ops.check(case, bound)
            last = bound.outputs[-1]
            last[..., 0] += np.ones(1, last.dtype)
            with pytest.raises(WrongResultError, match=case.op):
                ops.check(case, bound)


def test_host_cases_check_what_they_time():
    assert host.ngram(500, steps=50).median > 0
    host.check_proposal([1, 2, 3, 1, 2], [3, 1, 2, 3, 1, 2, 3, 1])
    with pytest.raises(WrongResultError, match="n-gram proposed"):
        host.check_proposal([1, 2, 3, 1, 2], [])
    assert host.governor(100).p999 >= 0
    assert host.sampler(host.SAMPLER_CASES[0], 1000, steps=2).median > 0
