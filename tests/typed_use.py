"""The public API as a typed program uses it; mypy checks it in strict mode, and it also runs."""

from pathlib import Path
from typing import assert_type

import numpy as np

import specrt
from specrt import INHERIT, LLM, Completion, SamplingParams, Session, SpecOptions, Stream
from specrt.stream import Piece

SHORT = SamplingParams(max_tokens=2)


def load_it(path: Path) -> LLM:
    assert_type(specrt.load(path, spec=None, verbose=False), LLM)
    assert_type(specrt.load(str(path), spec="ngram", threads=1, verbose=False), LLM)
    return specrt.load(path, spec=SpecOptions(type="ngram"), kv_type="f32", verbose=False)


def generate_it(llm: LLM) -> list[Completion]:
    ids = [5, 6, 7]
    texts = ["one", "two"]
    one = llm.generate("one", SHORT)
    assert_type(one, Completion)
    assert_type(llm.generate(ids, SHORT, spec=INHERIT), Completion)
    assert_type(llm.generate(tuple(ids), SHORT, spec="none"), Completion)
    assert_type(llm.generate(np.array(ids), SHORT, spec=None), Completion)
    two = llm.generate(texts, SHORT)
    assert_type(two, list[Completion])
    assert_type(llm.generate([ids, ids], [SHORT, SHORT]), list[Completion])
    assert_type(llm.generate(("one", "two"), SHORT), list[Completion])
    assert_type(llm.generate(["one", ids], SHORT), list[Completion])
    assert_type(llm.generate([np.array(ids)], SHORT), list[Completion])
    assert_type(one.text, str)
    assert_type(one.token_ids, list[int])
    assert_type(one.stats.emitted, int)
    return [one, *two]


def params_of_it() -> list[SamplingParams]:
    return [
        SamplingParams(stop="one", stop_token_ids=[3], logit_bias={5: 1.5}, max_tokens=1),
        SamplingParams(stop=["one", "two"], stop_token_ids=(3, 4), max_tokens=1),
        SamplingParams(stop=None, stop_token_ids=None, logit_bias=None, max_tokens=1),
    ]


def stream_it(llm: LLM) -> Completion:
    with llm.stream("one", SHORT) as stream:
        assert_type(stream, Stream)
        for piece in stream:
            assert_type(piece, Piece)
            assert_type(piece.text, str)
        assert_type(stream.completion, Completion | None)
    assert stream.completion is not None
    return stream.completion


def talk_to_it(llm: LLM, path: Path) -> Completion:
    messages = [{"role": "user", "content": "hi"}]
    assert_type(llm.chat(messages, SHORT, enable_thinking=False), Completion)
    with llm.session() as session:
        assert_type(session, Session)
        assert_type(session.send("hi", SHORT), Completion)
        assert_type(session.generate([5, 6], SHORT), Completion)
        assert_type(session.stream_send("hi", SHORT), Stream)
        session.save(path)
    with Session.load(llm, path) as session:
        assert_type(session.cached_tokens, int)
        return session.send("hi", SHORT)


def look_into_it(llm: LLM) -> None:
    assert_type(llm.tokenizer.encode("one"), list[int])
    assert_type(llm.tokenizer.decode([5]), str)
    assert_type(llm.logits([5, 6]), np.ndarray)
    assert_type(llm.perplexity("one two three", n_ctx=4), float)
    assert_type(llm.context, int)
