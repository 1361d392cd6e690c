"""The governor's bounds: their measurements on a tiny model."""

import json
from dataclasses import replace

import numpy as np
import pytest

import specrt
from specrt.bench import governor
from specrt.bench.__main__ import main
from specrt.bench.costs import replay_costs, row_seconds
from specrt.bench.governor import bounds_of, registry_with
from specrt.bench.governor_checks import (
    COPIED_TOKENS,
    Reaction,
    Replayed,
    adversarial,
    forced_steps,
    plain_answer,
    predicted,
    reaction,
)
from specrt.bench.pairs import pairs
from specrt.bench.prompts import Prompt
from specrt.bench.scripted import WrongSpeculator
from specrt.options import SamplingParams, SpecOptions
from specrt.state.messages import DraftContext
from specrt.state.sequence import Cursor, Sequence
from tests.tiny_model import write_tiny_model

PROMPT = Prompt("p", "prose", ({"role": "user", "content": "one two three one two"},))
PARAMS = SamplingParams(max_tokens=40, ignore_eos=True)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write_tiny_model(tmp_path_factory.mktemp("tiny") / "tiny.gguf")


@pytest.fixture(scope="module")
def wrong():
    return WrongSpeculator()


@pytest.fixture(scope="module")
def llm(path, wrong):
    return specrt.load(path, max_sequences=2, registry=registry_with(wrong), verbose=False)


@pytest.fixture(scope="module")
def answer(llm):
    return plain_answer(llm, PROMPT, PARAMS)


def test_rows_cost_something_and_no_sequence_is_lost(llm):
    seconds = row_seconds(llm, 5, 30, rounds=2)
    assert seconds.shape == (5,) and (seconds > 0).all()
    sequences = [llm.target.open_sequence() for _ in range(2)]
    for sequence in sequences:
        llm.target.close_sequence(sequence)


def test_the_curve_goes_on_at_its_mean_slope():
    costs = replay_costs(np.array([1.0, 2.0, 4.0]))
    assert costs.verify.shape == (65,)
    assert costs.verify[:5].tolist() == [1.0, 2.0, 4.0, 5.5, 7.0]


def test_the_wrong_drafter_is_wrong_at_every_token(wrong):
    sequence = Sequence(0, 20)
    sequence.cursor = Cursor(num_tokens=3)
    wrong.text = [5, 6, 7, 0, 1, 9, 8]
    for num_draft in (1, 3, 8):
        (draft,) = wrong.propose([DraftContext(sequence, num_draft)])
        truth = wrong.text[3 : 3 + num_draft]
        assert len(draft.tokens) == len(truth)
        assert not any(a == b for a, b in zip(draft.tokens, truth, strict=True))
        assert min(draft.tokens) >= 0


def test_nothing_of_the_wrong_drafter_lands(llm, wrong, answer, monkeypatch):
    # Measured before, steps as short as this model's would not be worth the first draft.
    monkeypatch.setattr("specrt.speculative.row_costs.BUDGET", 0)
    result = adversarial(llm, wrong, PROMPT, answer, PARAMS, 2)
    assert result.tokens == 40
    # Every step emits one token: none was accepted.
    assert sum(result.num_draft_counts.values()) == 2 * 40
    assert result.num_draft_counts.keys() - {0}
    assert result.ratio.low > 0


def test_the_prediction_is_what_the_steps_should_cost(llm, answer, monkeypatch):
    rows = np.arange(1.0, 18.0)
    monkeypatch.setattr("specrt.bench.governor_checks.row_seconds", lambda *_: rows)
    measured = []

    def noted(*arguments):
        for pair in pairs(*arguments):
            measured.append(pair)
            yield pair

    monkeypatch.setattr("specrt.bench.governor_checks.pairs", noted)
    result = predicted(llm, PROMPT, answer, PARAMS, 2)
    emitted = 2 * result.tokens
    seconds = sum(count * (k + 1) for k, count in result.num_draft_counts.items())
    assert result.predicted_tokens_per_second == pytest.approx(emitted / seconds)
    assert result.predicted_ratio == pytest.approx(emitted / seconds)
    shares = []
    for pair in measured:
        counts = pair.spec.completion.stats.num_draft_counts
        shares.append(pair.ratio * sum(n * (k + 1) for k, n in counts.items()) / result.tokens)
    assert result.share.median == pytest.approx(np.median(shares))


def test_forced_steps_emit_the_text(llm):
    prompt = list(range(50))
    text = prompt + prompt[10:30] + [77]
    spec = SpecOptions(type="ngram", num_draft=4, governor=False)
    # Two ids of the copy are a hit; then five land a step, and the last draft is cut by the end.
    steps = list(forced_steps(llm, text, len(prompt), spec))
    assert steps == [(0, 0), (1, 0), (2, 4), (7, 4), (12, 4), (17, 3)]


def test_a_reaction_counts_from_the_first_hit(llm, answer, monkeypatch):
    source = np.random.default_rng(0).permutation(200).tolist()
    prose = replace(answer, token_ids=[201, 202, 203, 204, 205])
    found = reaction(llm, PROMPT, prose, source)
    assert (found.prose, found.first_hit) == (5, 2)
    assert 0 <= found.tokens < COPIED_TOKENS

    def never(llm, text, prompt_len, spec):
        return iter([(at, 1) for at in range(len(text) - prompt_len)])

    monkeypatch.setattr("specrt.bench.governor_checks.forced_steps", never)
    assert reaction(llm, PROMPT, prose, source).tokens == COPIED_TOKENS - 2


def test_bounds_take_the_worst_prompt():
    found = [
        Replayed("a", 1, 0.5, 8, 3, 1.0, 1.0, 0.99),
        Replayed("a", 1, 0.5, 16, 3, 1.0, 1.0, 0.96),
        Replayed("b", 1, 0.5, 8, 3, 1.0, 1.0, 0.94),
        Replayed("b", 1, 0.5, 16, 3, 1.0, 1.0, 0.97),
        Reaction("a", 1, 2, 10),
        Reaction("b", 1, 2, 64),
    ]
    assert [(b.figure, b.holds) for b in bounds_of(found)] == [
        (0.94, False),
        (0.96, True),
        (64, True),
    ]
    assert bounds_of([]) == []


def test_a_context_that_is_too_small_is_told_before_the_work(path, monkeypatch, capsys):
    monkeypatch.delattr(governor, "measure_curve")
    assert main(["governor", "--model", str(path)]) == 2
    assert "pass a larger --context" in capsys.readouterr().err


def test_the_longest_draft_can_be_said(path, tmp_path, monkeypatch):
    monkeypatch.setattr(governor, "COPIED", "fact-primes")
    file = tmp_path / "governor.json"
    arguments = ["--tokens", "16", "--pairs", "1", "--rounds", "1", "--prompts", "fact-primes"]
    arguments += ["--spec-draft", "3", "--json", str(file)]
    assert main(["governor", "--model", str(path), *arguments]) == 0
    saved = json.loads(file.read_text())
    assert [one["most_draft"] for one in saved["replayed"]] == [3]
    assert len(saved["curve"][0]["milliseconds"]) == 4
    for one in saved["adversarial"] + saved["predicted"]:
        assert max(int(num_draft) for num_draft in one["num_draft_counts"]) <= 3


@pytest.mark.parametrize("flag", [["--spec-type", "ngram"], ["--no-spec"], ["--spec-pmin", "0"]])
def test_it_takes_no_flag_that_it_would_not_heed(path, capsys, flag):
    assert main(["governor", "--model", str(path), *flag]) == 2
    assert "unrecognized arguments" in capsys.readouterr().err


def test_the_command(path, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(governor, "COPIED", "fact-primes")
    file = tmp_path / "governor.json"
    flags = ["--tokens", "16", "--pairs", "1", "--rounds", "1", "--prompts", "fact-primes"]
    assert main(["governor", "--model", str(path), *flags, "--json", str(file)]) == 0
    printed = capsys.readouterr().out
    assert "always wrong" in printed and "Bounds" in printed
    saved = json.loads(file.read_text())
    assert saved["complete"] and len(saved["bounds"]) == 5
    assert len(saved["curve"][0]["milliseconds"]) == 17
    assert [(one["tokens"], one["most_draft"]) for one in saved["replayed"]] == [(16, 8), (16, 16)]
    assert str(tmp_path) not in file.read_text()
