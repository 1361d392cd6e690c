"""What a run refuses before it measures, and what it tells of a wrong result."""

import json
from dataclasses import replace

import pytest

from benchmarks.peers.__main__ import main
from benchmarks.peers.engine import Answer
from benchmarks.peers.measure import Contestant, Sample
from tests.tiny_model import write_tiny_model

PLAIN = Answer([1, 2, 3], "", 3, 1, 10, 50.0, 20.0, 2)


class Idle:
    """An engine that nobody starts."""

    def __init__(self, name, speculations=()):
        self.name, self.speculations = name, speculations

    def about(self):
        return {}


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run the command over samples that are given in place of engines."""
    path = write_tiny_model(tmp_path / "tiny.gguf")

    def run(samples, *flags, speculations=("ngram-mod",)):
        def measure(*_):
            assert samples is not None, "it measures"
            yield from samples

        engines = [Idle("specrt", ("speculative",)), Idle("llama.cpp", speculations)]
        monkeypatch.setattr("benchmarks.peers.run.measure", measure)
        monkeypatch.setattr("benchmarks.peers.run.make_engines", lambda *_: engines)
        return main(["run", "--model", str(path), "--prompts", "prose-gpu", *flags])

    return run


def sample(engine, mode, number, answer):
    return Sample(Contestant(engine, mode), number, "prose-gpu", "prose", answer)


@pytest.mark.parametrize(
    ("flags", "speculations", "told"),
    [
        (["--bar-spec", "1.8"], ["x"], "--bar-category edit: none of the prompts asked is of it"),
        (["--bar-spec-least", "1", "--bar-category", "proses"], ["x"], "expected one of prose"),
        (["--bar-spread", "--rounds", "1"], ["x"], "pass --rounds 2 or more"),
        (["--bar-spec", "1", "--bar-category", "prose"], [], "llama.cpp does not speculate"),
        (["--bar-spec-least", "1", "--bar-category", "prose"], [], "llama.cpp does not speculate"),
    ],
)
def test_a_bar_that_could_only_be_missed_is_refused(run, capsys, flags, speculations, told):
    assert run(None, *flags, speculations=speculations) == 2
    assert told in capsys.readouterr().err


def test_bars_that_nobody_asked_for_refuse_nothing(run):
    assert run([sample("specrt", "plain", 0, PLAIN)], "--rounds", "1", speculations=[]) == 0


def test_a_bar_with_nothing_behind_it_is_shown_and_missed(run, tmp_path, capsys):
    file = tmp_path / "peers.json"
    short = replace(PLAIN, token_ids=[1], num_tokens=1, steps=0)
    samples = [sample(name, "plain", 0, short) for name in ("specrt", "llama.cpp")]
    assert run(samples, "--bar-decode", "2", "--bar-spread", "--json", str(file)) == 1
    assert "plain decoding over llama.cpp" in capsys.readouterr().out
    saved = json.loads(file.read_text(), parse_constant=pytest.fail)
    assert [(b["figure"], b["holds"]) for b in saved["bounds"]] == [(None, False)] * 2


def test_no_time_of_a_wrong_result_is_told(run, tmp_path, capsys):
    file = tmp_path / "peers.json"
    wrong = replace(PLAIN, token_ids=[1, 2, 4])
    rounds = [("plain", 0, PLAIN), ("speculative", 0, PLAIN), ("plain", 1, PLAIN)]
    samples = [sample("specrt", *one) for one in [*rounds, ("speculative", 1, wrong)]]
    assert run(samples, "--json", str(file)) == 1
    captured = capsys.readouterr()
    assert captured.out == "" and not file.exists()
    assert "wrong result: prose-gpu: specrt speculative of round 2 differs at 2" in captured.err
