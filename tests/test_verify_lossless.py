"""verify-lossless: finds nothing on a right model, and finds what is wrong on a wrong one."""

from dataclasses import replace

import pytest

import specrt
from specrt.__main__ import main
from specrt.cli.verify_lossless import prompts
from specrt.lossless import (
    ENDED,
    NUM_DRAFTS,
    PARAMS,
    Cell,
    LosslessCheck,
    difference,
    end_id,
    stop_string,
)
from specrt.speculative import runtime
from specrt.speculative.registry import SpeculatorFactory, default_registry
from specrt.state.messages import TokenLogprob
from tests.fakes import ScriptedSpeculator
from tests.models_on_disk import golden_path, load_golden
from tests.tiny_model import write_tiny_model


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_tiny_model(tmp_path_factory.mktemp("lossless") / "tiny.gguf")


def cells_of(llm, max_tokens, spec):
    check = LosslessCheck(llm, prompts(llm), max_tokens, spec)
    cells = list(check.cells())
    assert len(cells) == len(check)
    assert [cell.difference for cell in cells] == [None] * len(cells)
    return cells


def test_every_cell_sees_every_outcome_and_no_difference(model):
    llm = specrt.load(model, verbose=False)
    cells = cells_of(llm, 40, "auto")
    assert {cell.setting for cell in cells} == {*PARAMS, *ENDED}
    assert len(cells) == 6 * (2 * len(NUM_DRAFTS) + 1)
    assert [str(cell) for cell in cells if cell.missed] == []
    assert all(cell.num_inner for cell in cells if cell.drafter == "ngram")


def test_a_file_without_text_is_checked_on_ids():
    cells = cells_of(load_golden("llama-quant"), 30, "ngram")
    assert {cell.setting for cell in cells} == {*PARAMS, "end id"}
    assert all(cell.num_inner for cell in cells if cell.drafter == "ngram")


def test_the_drafters_are_those_of_the_spec_type(model):
    registry = default_registry()
    toy = ScriptedSpeculator(lambda context: [5] * context.num_draft)
    toy.name, toy.max_draft = "toy", 5
    registry.register(SpeculatorFactory("toy", False, lambda *_: toy))
    llm = specrt.load(model, registry=registry, verbose=False)
    cells = cells_of(llm, 30, "toy,ngram")
    assert {cell.drafter for cell in cells} == {"scripted", "toy", "ngram", "as loaded"}
    assert all(cell.num_inner for cell in cells if cell.drafter == "toy")
    assert {cell.drafter for cell in cells_of(llm, 4, "none")} == {"scripted", "as loaded"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("abcdefgh", "efgh"),
        ("abc\ufffdefg\ufffd", "efg"),
        ("aaaa\ufffdb\ufffd\ufffd\ufffd", "b"),
        ("aaaaaaaaaaaa", "aaaa"),
        ("\ufffd\ufffd", None),
        ("", None),
    ],
)
def test_a_stop_string_is_whole_characters_in_the_middle(text, expected):
    assert stop_string(text) == expected


def test_an_end_id_has_its_first_place_in_the_middle():
    assert end_id([1, 2, 3, 4, 5, 6]) == 4
    assert end_id([1, 2, 2, 2, 2, 1]) == 2


def test_a_cell_tells_what_it_missed():
    cell = Cell("greedy", "ngram", 3)
    assert cell.missed == ["no id of ngram's", "no m = 0", "no m = K", "no 0 < m < K"]
    for accepted in (0, 1, 3):
        cell.count(3, accepted)
    cell.count(2, 2)
    assert (cell.windows, cell.missed) == (3, ["no id of ngram's"])
    cell.num_inner = 1
    assert cell.covered
    assert Cell("greedy", "as loaded", None).missed == ["no draft was verified"]
    assert Cell("end id", "as loaded", None, 1, unstopped=2).missed == [
        "2 answers without their end"
    ]
    one = Cell("greedy", "scripted", 1, none=1, whole=1)
    assert one.covered


def test_a_runtime_that_accepts_too_much_is_caught(model, monkeypatch, capsys):
    real = runtime.accept

    def generous(sequence, drawer, boundary):
        acceptance, draft_tokens = real(sequence, drawer, boundary), drawer.window.tokens[1:]
        missed = len(acceptance.tokens) == 1 and len(draft_tokens) > 1
        if missed and acceptance.finish_reason is None:
            sequence.history[sequence.cursor.num_tokens] = draft_tokens[0]
            return acceptance._replace(tokens=[draft_tokens[0]])
        return acceptance

    monkeypatch.setattr(runtime, "accept", generous)
    assert main(["verify-lossless", str(model), "-n", "16"]) == 1
    out = capsys.readouterr().out
    assert "differs from plain: greedy, scripted, K = 3" in out
    assert "prose: token " in out


def test_the_command_says_that_all_is_well(model, capsys):
    assert main(["verify-lossless", str(model), "-n", "40"]) == 0
    out = capsys.readouterr().out
    assert "lossless: " in out and "every cell saw every outcome" in out


def test_the_command_says_what_it_did_not_see(capsys):
    arguments = ["-n", "6", "--spec-type", "draft-head"]
    assert main(["verify-lossless", str(golden_path("llama-quant")), *arguments]) == 0
    out = capsys.readouterr().out
    assert "lossless: " not in out and "lossless as far as seen: " in out
    assert "of 25 cells missed an outcome" in out
    assert "declined: draft-head: no draft head is attached" in out


def test_difference_compares_bits():
    llm = load_golden("llama-quant")
    got = llm.generate([1, 2, 3], specrt.SamplingParams(max_tokens=4, logprobs=0))
    assert difference(got, got) is None
    first = got.logprobs[0]
    nearly = TokenLogprob(first.token, first.logprob + 1e-15, first.top)
    for other, word in (
        (replace(got, logprobs=[nearly, *got.logprobs[1:]]), "logprobs"),
        (replace(got, token_ids=[*got.token_ids[:2], 0, got.token_ids[3]]), "token 2"),
        (replace(got, finish_reason="stop"), "finish_reason"),
        (replace(got, text="x"), "text"),
    ):
        assert word in (difference(other, got) or "")
