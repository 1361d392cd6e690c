"""What a draft costs and gains beside llama.cpp: a stand-in for the server, specrt itself."""

import json
import stat
import sys
from pathlib import Path

import pytest

from benchmarks.peers.__main__ import main
from benchmarks.peers.engine import Answer
from benchmarks.peers.engines.llama_cpp import synthetic_type
from benchmarks.peers.gains import Point, gains, show_costs
from benchmarks.peers.measure import Contestant, Sample
from specrt.bench.scripted import SyntheticHead
from specrt.bench.timing import Spread
from specrt.llm import find_model
from specrt.state.messages import DraftContext
from specrt.state.sequence import Cursor, Sequence
from tests.tiny_model import write_tiny_model

FEW = ["--acceptance", "0.5,0.9", "--num-draft", "2", "--rows", "3", "--rounds", "2"]


@pytest.fixture
def server(tmp_path, monkeypatch):
    script = Path(__file__).parent / "fake_llama_server.py"
    file = tmp_path / "llama-server"
    file.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{script}" "$@"\n')
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("FAKE_LLAMA_LOG", str(tmp_path / "log.jsonl"))
    return file


def sample(mode, prompt, ms, steps, tokens):
    answer = Answer(None, "", tokens, 1, 9, 1.0, ms * steps, steps)
    return Sample(Contestant("it", mode), 0, prompt, "random", answer)


# The arithmetic


@pytest.mark.parametrize(("acceptance", "tokens"), [(0.0, 1.0), (0.5, 1.875), (1.0, 4.0)])
def test_what_a_step_emits(acceptance, tokens):
    assert Point(3, acceptance).tokens == tokens


def test_the_server_takes_what_is_accepted_up_to_each_position():
    expected = "draft-mtp --spec-draft-n-max 3 --spec-synth-rates 0.5,0.25,0.125"
    assert synthetic_type(3, 0.5) == expected


def test_each_ratio_is_of_its_own_round():
    # The machine is three times as slow in round 1: the ratio stays, and the median is of three.
    plain = [sample("plain", str(n), ms, 10, 11) for n, ms in enumerate([10, 30, 10])]
    drafting = [sample("x", str(n), ms, 4, 11) for n, ms in enumerate([15, 45, 18])]
    (gain,) = gains(plain + drafting, {Contestant("it", "x"): Point(3, 0.5)})
    assert gain.ms == Spread(18, 15, 45) and gain.plain_steps == 1.5
    assert gain.ratio == 1.875 / 1.5 and gain.tokens_per_second == pytest.approx(1875 / 18)
    assert gain.drawn == 2.5
    a = gain.break_even
    assert 1 + a + a**2 + a**3 == pytest.approx(1.5)


def test_a_draft_that_never_pays_is_told(capsys):
    samples = [sample("plain", "0", 10, 10, 11), sample("x", "0", 25, 10, 11)]
    found = gains(samples, {Contestant("it", "x"): Point(1, 0.0)})
    show_costs({"it": Spread(10, 10, 10)}, found)
    assert found[0].break_even is None and "never" in capsys.readouterr().out


# Who drafts


class Drafter:
    """Notes what it is asked."""

    name, max_draft, taps = "drafter", 5, frozenset({"tap"})

    def __init__(self):
        self.notes = []

    def propose(self, contexts):
        self.notes.append(("propose", contexts[0].num_draft, contexts[0].pmin))

    def commit(self, kept):
        self.notes.append(("commit", kept))

    def reset(self, sequence):
        self.notes.append(("reset", sequence))

    def heard(self, sequence):
        return 7


def test_a_synthetic_head_lets_the_drafter_work_and_replaces_its_ids():
    drafter = Drafter()
    head = SyntheticHead(drafter, 1.0)
    head.text = list(range(10, 30))
    sequence = Sequence(0, 20)
    sequence.cursor = Cursor(num_tokens=4)
    (draft,) = head.propose([DraftContext(sequence, 3, 0.75)])
    assert draft.tokens == [14, 15, 16] and draft.confidences == []
    head.commit(["rows"])
    head.reset(sequence)
    assert head.heard(sequence) == 7 and head.taps == drafter.taps and head.max_draft == 5
    # Without a gate: the drafter has to work out as many tokens as are proposed.
    assert drafter.notes == [("propose", 3, 0.0), ("commit", ["rows"]), ("reset", sequence)]


# From end to end


def test_the_command(server, tmp_path, capsys):
    file = tmp_path / "curve.json"
    model = str(find_model("tiny"))
    flags = ["--model", model, "--threads", "1", "--llama-server", str(server)]
    assert main(["curve", *flags, *FEW, "--json", str(file)]) == 0
    assert "plain steps" in capsys.readouterr().out
    saved = json.loads(file.read_text())
    assert set(saved["plain_ms"]) == {"specrt", "llama.cpp"}
    found = {(g["engine"], g["point"]["acceptance"]): g for g in saved["gains"]}
    assert set(found) == {(name, a) for name in saved["plain_ms"] for a in (0.0, 0.5, 0.9)}
    mine = [found["specrt", a]["drawn"] for a in (0.0, 0.5, 0.9)]
    assert mine[0] == 1 and 1.3 < mine[1] < mine[2] <= 3
    assert found["llama.cpp", 0.9]["plain_steps"] == 1  # by the stand-in's rule
    assert found["llama.cpp", 0.9]["ratio"] == pytest.approx(2.71)
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    starts = [" ".join(line["flags"]) for line in lines if line["kind"] == "start"]
    assert [synthetic_type(2, 0.9) in start for start in starts] == [False, False, False, True]


def test_a_file_without_a_draft_head(server, tmp_path, capsys):
    model = str(write_tiny_model(tmp_path / "tiny.gguf"))
    flags = ["--model", model, "--threads", "1", "--llama-server", str(server)]
    assert main(["curve", *flags, *FEW]) == 2
    assert "expected a draft head in the file" in capsys.readouterr().err


@pytest.mark.parametrize("flags", [["--rows", "1,2"], ["--rows", "66"], ["--num-draft", "65"]])
def test_impossible_rows(flags, capsys):
    assert main(["curve", "--model", "tiny", *flags]) == 2
    assert "expected steps of 2 to 65 rows" in capsys.readouterr().err
