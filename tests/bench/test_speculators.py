"""Speculators side by side: who stands there, what is printed, drawn, saved and refused."""

import json
import shutil

import numpy as np
import pytest

import specrt
from specrt import SamplingParams, SpecOptions
from specrt.assets import embedded_drafter, embedded_model
from specrt.bench import speculators
from specrt.bench.__main__ import _parser, main
from specrt.bench.contestants import Drafter, contestants_of, drafters_of
from specrt.bench.pairs import conversations
from specrt.bench.prompts import Prompt
from specrt.drafters.dflash_head import DFlashHead
from specrt.errors import OptionError
from specrt.gguf.reader import open_gguf
from specrt.options import MAX_DRAFT
from specrt.settings import DRAFT_MODEL, SPEC_PMIN
from specrt.speculative.algorithms.ngram import NgramSpeculator
from specrt.state.messages import residual_entering
from tests.fakes import ScriptedSpeculator
from tests.models_on_disk import golden_path, load_golden
from tests.tiny_model import write_tiny_model

FEW = ["--tokens", "10", "--pairs", "1", "--ignore-eos", "--prompts", "fact-primes"]


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    for setting in (DRAFT_MODEL, SPEC_PMIN):
        for variable in setting.variables:
            monkeypatch.delenv(variable, raising=False)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return str(write_tiny_model(tmp_path_factory.mktemp("tiny") / "tiny.gguf"))


@pytest.fixture(scope="module")
def family(tmp_path_factory):
    """A model with a head of its own, and two drafters for it; their names begin alike."""
    folder = tmp_path_factory.mktemp("family")
    files = {"some-model": "qwen35", "some-a": "dflash2-qwen35", "some-b": "dflash2-qwen35"}
    for name, golden in files.items():
        shutil.copy(golden_path(golden), folder / f"{name}.gguf")
    return {name: str(folder / f"{name}.gguf") for name in files}


def drafter(name, max_draft):
    made = ScriptedSpeculator(lambda context: [])
    made.name, made.max_draft = name, max_draft
    return Drafter(made, f"{name}.gguf")


def test_each_alone_then_behind_ngrams_with_every_k():
    drafters = [Drafter(NgramSpeculator(2, 8)), drafter("head", MAX_DRAFT), drafter("block", 15)]
    found = contestants_of(drafters, [3, None], SpecOptions(pmin=0.2))
    assert [(one.name, one.num_draft) for one in found] == [
        *(("ngram", 3), ("ngram", 7), ("head", 3), ("head", 7), ("block", 3), ("block", 15)),
        *(("ngram,head", 3), ("ngram,head", 7), ("ngram,block", 3), ("ngram,block", 15)),
    ]
    assert {one.spec.pmin for one in found} == {0.2}
    assert all(one.spec.governor and not one.fixed.governor for one in found)
    assert [one.drafter for one in found[-2:]] == ["block.gguf"] * 2
    assert found[0].drafter is None


def test_a_k_beyond_the_block_is_the_whole_block_and_stands_once():
    found = contestants_of([drafter("block", 2)], [3, 1, None], SpecOptions())
    assert [one.num_draft for one in found] == [2, 1]


def test_heads_share_one_target_and_have_names_of_their_own(family):
    llm = load_golden("qwen35", max_sequences=3, context=64)
    files = [open_gguf(family[name]) for name in ("some-b", "some-a")]
    found, declined = drafters_of(llm, files)
    assert declined == []
    # Of a model file of another name nothing is shared, so their whole names stand.
    names = [one.speculator.name for one in found]
    assert names == ["ngram", "draft-head", "block some-b", "block some-a"]
    assert [one.file for one in found] == [None, None, "some-b.gguf", "some-a.gguf"]
    heads = [one.speculator.head for one in found[2:]]
    assert all(isinstance(head, DFlashHead) for head in heads) and heads[0] is not heads[1]
    rings = [
        llm.target.tap_rows.ring(residual_entering(i)) for i in heads[0].weights.keys.target_layers
    ]
    for head in heads:
        assert all(a is b for a, b in zip(head.passes._rings, rings, strict=True))


def test_two_drafters_of_one_name_are_refused(family, tmp_path):
    other = tmp_path / "some-a.gguf"
    shutil.copy(family["some-a"], other)
    llm = load_golden("qwen35", max_sequences=3, context=64)
    with pytest.raises(OptionError, match="some-a, some-a: expected files of different names"):
        drafters_of(llm, [open_gguf(family["some-a"]), open_gguf(other)])


def ids_of(tokenizer, template, messages, **variables):
    """For a file without a tokenizer."""
    text = " ".join(message["content"] for message in messages)
    return [byte % 64 for byte in text.encode()[-40:]]


def test_all_of_them_on_one_model(family, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("specrt.session.chat_ids", ids_of)
    files = {kind: tmp_path / f"out.{kind}" for kind in ("json", "png", "markdown")}
    flags = ["--model", family["some-model"], "--context", "512", "--threads", "1"]
    flags += ["--draft-model", family["some-b"], "--draft-model", family["some-a"]]
    flags += ["--turns", "1,2", "--spec-pmin", "0"]
    pytest.importorskip("matplotlib")
    told = [text for kind, file in files.items() for text in (f"--{kind}", str(file))]
    assert main(["speculators", *flags, *FEW, *told]) == 0
    printed = capsys.readouterr().out
    saved = json.loads(files["json"].read_text())
    assert saved["complete"] and saved["machine"]["threads"] == 1
    results = saved["results"]
    head = load_golden("qwen35", "dflash2-qwen35", max_sequences=1, context=64)
    full = head.speculation.resolve(SpecOptions(type="block")).speculators[0].max_draft
    told = [(one["contestant"]["name"], one["contestant"]["num_draft"]) for one in results]
    alone = [("ngram", 7), ("draft-head", 7), ("block b", full), ("block a", full)]
    chained = [(f"ngram,{name}", most) for name, most in alone[1:]]
    assert told == [(name, k) for name, most in alone + chained for k in (3, most)]
    for one in results:
        assert one["contestant"]["name"] in printed
        (category, everything) = one["standings"]
        assert (category["category"], everything["category"]) == ("factual", "all")
        assert everything["turns"] == [1, 2] and everything["step_ms"] > 0
        assert [turn["turns"] for turn in one["by_turn"]] == [[1], [2]] * 2
        ratios = [turn["ratio"] for turn in one["by_turn"][2:]]
        assert everything["ratio"] == pytest.approx(np.sqrt(np.prod(ratios)))
        assert everything["least"] == pytest.approx(min(ratios))
        assert list(one["prompts"]) == ["fact-primes", "fact-primes, turn 2"]
    of_block = [one for one in results if one["contestant"]["name"] == "block b"]
    shares = [one["standings"][-1]["acceptance_at"] for one in of_block]
    # Without the governor and a gate all K tokens are drafted while there is room for them.
    assert [len(one) for one in shares] == [3, full]
    assert all(one["standings"][-1]["verify_ms"] > 0 for one in of_block)
    assert files["png"].read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    table = files["markdown"].read_text()
    assert "| drafts | K | factual | all |" in table and "| block b | 3 |" in table
    assert sum(line.count("**") for line in table.splitlines()) >= 4  # a winner of each column


def test_without_flags_ngrams_and_the_own_head_of_the_tiny_model(tmp_path, capsys):
    file = tmp_path / "out.json"
    flags = ["--tokens", "4", "--pairs", "1", "--prompts", "vector", "--turns", "1"]
    assert main([*flags, "--num-drafts", "2", "--json", str(file)]) == 0
    saved = json.loads(file.read_text())
    names = [one["contestant"]["name"] for one in saved["results"]]
    assert names[:2] == ["ngram", "draft-head"] and "ngram,draft-head" in names
    assert saved["bench"] == "speculators" and saved["settings"]["tokens"] == 4
    assert "turn 1; every answer equals the plain one" in capsys.readouterr().out


def test_the_environment_names_a_drafter_too(path, family, monkeypatch):
    args = speculators_args(["--model", family["some-model"]])
    assert speculators.draft_files(args) == []
    monkeypatch.setenv(DRAFT_MODEL.variables[0], family["some-a"])
    assert speculators.draft_files(args) == [family["some-a"]]
    args = speculators_args(["--draft-model", "x", "--draft-model", "y"])
    assert speculators.draft_files(args) == ["x", "y"]


def test_what_comes_with_the_tiny_model_stands_beside_it(path):
    for flags in ([], ["--model", str(embedded_model())]):
        assert speculators.draft_files(speculators_args(flags)) == [str(embedded_drafter())]
    assert speculators.draft_files(speculators_args(["--model", path])) == []


def speculators_args(flags):
    return _parser().parse_args(["speculators", *flags])


def test_every_turn_is_there(path):
    llm = specrt.load(path, spec="none", max_sequences=2, verbose=False)
    prompt = Prompt("p", "prose", ({"role": "user", "content": "hi"},))
    params = SamplingParams(max_tokens=2, ignore_eos=True)
    found = conversations(llm, prompt, params, "ngram", 2, 2)
    assert [pair.turn for pair in found] == [1, 2, 1, 2]


def test_a_contestant_that_changes_an_answer_has_no_time(path, tmp_path, monkeypatch, capsys):
    differences = iter([None] * 3 + ["token_ids"])
    monkeypatch.setattr("specrt.bench.pairs.difference", lambda *_: next(differences))
    file = tmp_path / "out.json"
    flags = ["--model", path, *FEW, "--turns", "1", "--json", str(file)]
    assert main(["speculators", *flags]) == 1
    captured = capsys.readouterr()
    assert "wrong result: ngram K=3: fact-primes, turn 1: speculation changed" in captured.err
    assert captured.out == "" and not file.exists()


@pytest.mark.parametrize(("pairs", "told"), [(3, [3]), (1, None)])
def test_an_interrupt_keeps_what_has_both_kinds_of_pairs(path, tmp_path, monkeypatch, pairs, told):
    measure = speculators.measure

    def interrupted(*arguments):
        # ngram K=3 without and with the governor, K=7 without
        for one, _ in zip(measure(*arguments), range(pairs), strict=False):
            yield one
        raise KeyboardInterrupt

    monkeypatch.setattr(speculators, "measure", interrupted)
    file = tmp_path / "out.json"
    flags = ["--model", path, *FEW, "--turns", "1", "--json", str(file)]
    assert main(["speculators", *flags]) == 130
    assert file.exists() == (told is not None)
    if told is not None:
        saved = json.loads(file.read_text())
        assert saved["complete"] is False
        assert [one["contestant"]["num_draft"] for one in saved["results"]] == told


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--num-drafts", "0"], "expected an integer >= 1"),
        (["--num-drafts", "65"], "integers from 1 to 64, or full"),
        (["--num-drafts", ""], "integers from 1 to 64, or full"),
        (["--turns", "0"], "expected an integer >= 1"),
        (["--png", "no/such/folder/x.png"], "--png no/such/folder/x.png: expected a file"),
        (["--markdown", "no/such/folder/x.md"], "--markdown no/such/folder/x.md: expected a file"),
        (["--draft-model", "nothing.gguf"], "nothing.gguf"),
        (["--spec-type", "ngram"], "unrecognized"),
        (["--prompts", "nothing"], "expected some of prose-gpu"),
    ],
)
def test_wrong_arguments_are_one_line_and_exit_2(path, capsys, flags, message):
    assert main(["speculators", "--model", path, *flags]) == 2
    captured = capsys.readouterr()
    assert message in captured.err and captured.out == ""
    assert captured.err.startswith("error: ") and captured.err.count("\n") == 1


def test_a_model_is_no_drafter(path, capsys):
    assert main(["speculators", "--model", path, *FEW, "--draft-model", path]) == 2
    assert "expected a drafter" in capsys.readouterr().err
