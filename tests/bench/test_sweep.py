"""Synthetic drafters, and every K in turn."""

import json

import numpy as np
import pytest

from specrt.bench import sweep
from specrt.bench.__main__ import main
from specrt.bench.scripted import SyntheticSpeculator
from specrt.state.messages import DraftContext
from specrt.state.sequence import Cursor, Sequence
from tests.tiny_model import write_tiny_model

FEW = ["--tokens", "24", "--pairs", "1", "--ignore-eos", "--prompts", "fact-primes"]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return str(write_tiny_model(tmp_path_factory.mktemp("tiny") / "tiny.gguf"))


def drafted(speculator, at, num_draft):
    sequence = Sequence(0, len(speculator.text))
    sequence.cursor = Cursor(num_tokens=at)
    (draft,) = speculator.propose([DraftContext(sequence, num_draft)])
    return draft.tokens


@pytest.mark.parametrize("acceptance", [0.0, 0.3, 0.8, 1.0])
def test_a_token_is_right_with_the_probability(acceptance):
    speculator = SyntheticSpeculator(acceptance)
    speculator.text = np.random.default_rng(5).integers(0, 9, 20_001).tolist()
    tokens = [token for at in range(1, 20_000, 10) for token in drafted(speculator, at, 10)]
    right = np.mean([a == b for a, b in zip(tokens, speculator.text[1:], strict=True)])
    assert right == pytest.approx(acceptance, abs=0.015)
    assert min(tokens) >= 0


def test_where_it_is_wrong_depends_on_the_position_alone():
    speculator = SyntheticSpeculator(0.5)
    speculator.text = list(range(1, 200))
    assert drafted(speculator, 50, 40)[10:] == drafted(speculator, 60, 30)
    assert drafted(SyntheticSpeculator(0.5, seed=1), 50, 40) != drafted(speculator, 50, 40)
    assert len(drafted(speculator, 190, 40)) == 9  # as far as the answer is known


@pytest.mark.parametrize(("acceptance", "length"), [("1", 4.0), ("0", 1.0)])
def test_the_drafter_of_a_synthetic_run(path, tmp_path, acceptance, length):
    file = tmp_path / "out.json"
    flags = ["--synthetic-acceptance", acceptance, "--sweep", "3", "--json", str(file)]
    assert main(["e2e", "--model", path, *FEW, *flags]) == 0
    saved = json.loads(file.read_text())
    assert saved["settings"]["synthetic_acceptance"] == float(acceptance)
    (one,) = saved["sweep"]
    assert one["results"][0]["speculator"] == "synthetic"
    assert one["totals"]["acceptance_rate"] == float(acceptance)
    assert one["totals"]["acceptance_length"] == pytest.approx(length, abs=0.2)


def test_the_governor_may_choose_how_far_a_synthetic_drafter_goes(path, tmp_path):
    file = tmp_path / "out.json"
    flags = ["--synthetic-acceptance", "0.7", "--spec-draft", "5", "--json", str(file)]
    assert main(["e2e", "--model", path, *FEW, *flags]) == 0
    saved = json.loads(file.read_text())
    assert saved["settings"]["spec"]["governor"] is True
    assert saved["results"][0]["speculator"] == "synthetic"
    assert max(map(int, saved["results"][0]["num_draft_counts"])) <= 5


def test_every_k_is_fixed(path, tmp_path, capsys):
    file = tmp_path / "out.json"
    flags = ["--synthetic-acceptance", "0.5", "--sweep", "--json", str(file)]
    assert main(["e2e", "--model", path, *FEW, *flags]) == 0
    printed = capsys.readouterr().out
    assert "K=16" in printed and "fact-primes" in printed
    saved = json.loads(file.read_text())
    assert [one["num_draft"] for one in saved["sweep"]] == list(sweep.NUM_DRAFTS)
    for one in saved["sweep"]:
        (result,) = one["results"]
        counts = {int(k): count for k, count in result["num_draft_counts"].items()}
        assert max(counts) == one["num_draft"]
        # Only where fewer tokens than K are left a step drafts less.
        shorter = sum(count for k, count in counts.items() if k < one["num_draft"])
        assert shorter <= one["num_draft"]


def test_an_interrupt_keeps_the_pairs_before_it(path, tmp_path, monkeypatch):
    pairs = sweep.pairs

    def interrupted(*arguments):
        if arguments[3].num_draft == 2:
            raise KeyboardInterrupt
        yield from pairs(*arguments)

    monkeypatch.setattr(sweep, "pairs", interrupted)
    file = tmp_path / "out.json"
    assert main(["e2e", "--model", path, *FEW, "--sweep", "--json", str(file)]) == 130
    saved = json.loads(file.read_text())
    assert saved["complete"] is False and [one["num_draft"] for one in saved["sweep"]] == [1]
