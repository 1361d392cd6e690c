"""verify-lossless: finds nothing on a right model, and finds what is wrong on a wrong one."""

from dataclasses import replace

import pytest

import specrt
from specrt.__main__ import main
from specrt.cli.verify_lossless import prompts
from specrt.lossless import NUM_DRAFTS, LosslessCheck, difference
from specrt.speculative import runtime
from specrt.state.messages import TokenLogprob
from tests.models_on_disk import golden_path, load_golden
from tests.tiny_model import write_tiny_model


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_tiny_model(tmp_path_factory.mktemp("lossless") / "tiny.gguf")


def test_every_cell_sees_every_outcome_and_no_difference(model):
    llm = specrt.load(model, verbose=False)
    check = LosslessCheck(llm, prompts(llm), 40, "auto")
    cells = list(check.cells())
    assert len(cells) == len(check) == 4 * (2 * len(NUM_DRAFTS) + 1)
    assert all(cell.difference is None for cell in cells)
    assert all(cell.covered for cell in cells if cell.num_draft)


def test_a_file_without_text_is_checked_on_ids():
    llm = load_golden("llama-quant")
    check = LosslessCheck(llm, prompts(llm), 30, "ngram")
    cells = list(check.cells())
    assert {cell.setting for cell in cells} == {"greedy", "sampled", "penalties"}
    assert all(cell.difference is None for cell in cells)


def test_a_runtime_that_accepts_too_much_is_caught(model, monkeypatch, capsys):
    real = runtime.accept

    def generous(sequence, draft_tokens, drawer, boundary):
        acceptance = real(sequence, draft_tokens, drawer, boundary)
        missed = len(acceptance.tokens) == 1 and len(draft_tokens) > 1
        if missed and acceptance.finish_reason is None:
            sequence.history[sequence.cursor.num_tokens] = draft_tokens[0]
            return replace(acceptance, tokens=[draft_tokens[0]])
        return acceptance

    monkeypatch.setattr(runtime, "accept", generous)
    assert main(["verify-lossless", str(model), "-n", "16"]) == 1
    out = capsys.readouterr().out
    assert "differs from plain: greedy, scripted, K = 3" in out
    assert "prose: token " in out


def test_the_command_says_that_all_is_well(capsys):
    assert main(["verify-lossless", str(golden_path("llama-quant")), "-n", "12"]) == 0
    assert "lossless: " in capsys.readouterr().out


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
