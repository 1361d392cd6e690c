"""What a call may hold is checked before any work."""

from dataclasses import replace

import pytest

import specrt
from specrt import SamplingParams
from specrt.errors import OptionError
from tests.tiny_model import write_tiny_model

PARAMS = SamplingParams(max_tokens=80, ignore_eos=True, temperature=1.0, seed=3)
PROMPT = "the rain and the hill "


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write_tiny_model(tmp_path_factory.mktemp("tiny") / "tiny.gguf")


@pytest.fixture(scope="module")
def llm(path):
    return specrt.load(path, spec="none", verbose=False)


OUTSIDE = {
    "logit_bias": {300: 1.0},
    "stop_token_ids": (2, 300),
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_ids_outside_the_vocabulary_are_told_before_any_work(llm, monkeypatch, name):
    monkeypatch.setattr(llm.target, "verify", None)
    monkeypatch.setattr(llm.target, "prefill", None)
    params = replace(PARAMS, **{name: OUTSIDE[name]})
    message = rf"{name} holds the id 300: .* from 0 to {llm.target.vocab_size - 1}"
    with pytest.raises(OptionError, match=message):
        llm.generate([PROMPT] * 6, [PARAMS] * 5 + [params])
    with pytest.raises(OptionError, match=message):
        llm.stream(PROMPT, params)
    with pytest.raises(OptionError, match=message):
        llm.chat([{"role": "user", "content": "hi"}], params)
    with llm.session() as session, pytest.raises(OptionError, match=message):
        session.send("hi", params)
    assert llm.target.num_open == 0


def test_a_batch_is_checked_before_any_work(llm, monkeypatch):
    monkeypatch.setattr(llm.target, "verify", None)
    monkeypatch.setattr(llm.target, "prefill", None)
    for prompts, params, message in (
        ([PROMPT] * 6, [PARAMS] * 5, "5 sampling params for 6 prompts"),
        ([PROMPT] * 2, [PARAMS, None], "params"),
        ([PROMPT] * 2, 5, "params"),
        ([PROMPT, 5], PARAMS, "expected text"),
        ([PROMPT, [1, "a"]], PARAMS, "expected text"),
        ([PROMPT, ""], PARAMS, "no tokens"),
        ([PROMPT, [5, 10**6]], PARAMS, "1000000"),
        (b"bytes", PARAMS, "bytes"),
        ([PROMPT, b"bytes"], PARAMS, "bytes"),
    ):
        with pytest.raises(OptionError, match=message):
            llm.generate(prompts, params)
    with pytest.raises(OptionError, match="magic"):
        llm.generate([PROMPT], PARAMS, spec="ngram,magic")
    with pytest.raises(OptionError, match="spec"):
        llm.generate([PROMPT], PARAMS, spec=3)


@pytest.mark.parametrize("params", [{"max_tokens": 3}, 5, [PARAMS]], ids=str)
def test_params_of_other_types_everywhere(llm, params):
    message = {"role": "user", "content": "hi"}
    with llm.session() as session:
        for call in (
            lambda: llm.stream(PROMPT, params),
            lambda: llm.chat([message], params),
            lambda: session.send("hi", params),
            lambda: session.generate(PROMPT, params),
        ):
            with pytest.raises(OptionError, match="SamplingParams"):
                call()
    assert llm.target.num_open == 0


def test_more_logprobs_than_ids_are_all_of_them(llm):
    got = llm.generate(PROMPT, replace(PARAMS, logprobs=1000, max_tokens=2))
    assert [len(entry.top) for entry in got.logprobs] == [llm.target.vocab_size] * 2


@pytest.mark.parametrize(
    "messages",
    ["hi", {"role": "user", "content": "hi"}, ["hi"], 5, [{"role": "user"}], []],
    ids=str,
)
@pytest.mark.parametrize("template", ["chat", "raw"])
def test_messages_of_other_shapes(tmp_path, messages, template):
    keywords = {} if template == "chat" else {"template": None}
    llm = specrt.load(write_tiny_model(tmp_path / "tiny.gguf", **keywords), verbose=False)
    with pytest.raises(OptionError, match=r"messages|no tokens|template"):
        llm.chat(messages, PARAMS)
