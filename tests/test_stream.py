"""Streams that are closed or iterated by another thread than the one in their step."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

import specrt
from specrt import SamplingParams
from specrt.errors import OptionError
from tests.running import same
from tests.tiny_model import write_tiny_model

PARAMS = SamplingParams(max_tokens=40, ignore_eos=True, temperature=1.0, seed=3)
PROMPT = "the rain and the hill "
SECONDS = 20


@pytest.fixture(scope="module")
def llm(tmp_path_factory):
    path = write_tiny_model(tmp_path_factory.mktemp("tiny") / "tiny.gguf")
    return specrt.load(path, spec="none", verbose=False)


def during_verify(llm, monkeypatch, do):
    """Call ``do`` once, inside the next step, where its rows are being written."""
    real = llm.target.verify

    def verify(*args, **keywords):
        monkeypatch.setattr(llm.target, "verify", real)
        do()
        return real(*args, **keywords)

    monkeypatch.setattr(llm.target, "verify", verify)


@contextmanager
def in_a_step(llm, monkeypatch, step):
    """Run ``step`` in another thread; within the block it stands still in its verify."""
    entered, leave = threading.Event(), threading.Event()

    def stand_still():
        entered.set()
        assert leave.wait(SECONDS)

    during_verify(llm, monkeypatch, stand_still)
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(step)
        assert entered.wait(SECONDS)
        try:
            yield future
        finally:
            leave.set()


def generated(stream, pieces):
    """The completion holds what the pieces showed, and no step follows."""
    assert stream.completion.finish_reason == "abort"
    assert stream.completion.token_ids == [t for piece in pieces for t in piece.token_ids]
    assert stream.completion.text.startswith("".join(piece.text for piece in pieces))
    assert list(stream) == []


def test_a_slot_is_not_given_away_while_a_step_writes_to_it(llm, monkeypatch):
    expected = llm.generate(PROMPT, PARAMS)
    stream = llm.stream(PROMPT, PARAMS)
    pieces = [next(stream), next(stream)]
    with in_a_step(llm, monkeypatch, lambda: next(stream)) as step:
        stream.close()
        stream.close()
        assert llm.target.num_open == 1
        assert stream.completion is None
        others = [llm.stream(PROMPT, PARAMS) for _ in range(llm.target.max_sequences - 1)]
        slots = [other._request.sequence.slot for other in others]
        assert stream._request.sequence.slot not in slots
    generated(stream, [*pieces, step.result()])
    assert llm.target.num_open == len(others)
    for other in others:
        for _ in other:
            pass
        same(other.completion, expected)
    assert llm.target.num_open == 0


def test_a_stream_can_be_closed_inside_its_own_step(llm, monkeypatch):
    """As a signal handler does it, or the collection of garbage."""
    stream = llm.stream(PROMPT, PARAMS)
    pieces = [next(stream)]
    during_verify(llm, monkeypatch, stream.close)
    pieces.append(next(stream))
    generated(stream, pieces)
    assert llm.target.num_open == 0


def test_a_stream_that_fails_in_a_step_after_it_was_closed_is_given_back(llm, monkeypatch):
    stream = llm.stream(PROMPT, PARAMS)
    pieces = [next(stream)]

    def interrupted():
        stream.close()
        raise KeyboardInterrupt

    during_verify(llm, monkeypatch, interrupted)
    with pytest.raises(KeyboardInterrupt):
        next(stream)
    generated(stream, pieces)
    assert llm.target.num_open == 0


def test_a_second_thread_is_told_and_the_stream_goes_on(llm, monkeypatch):
    stream = llm.stream(PROMPT, PARAMS)
    pieces = [next(stream)]
    with in_a_step(llm, monkeypatch, lambda: next(stream)) as step:
        with pytest.raises(OptionError, match="another step of this stream"):
            next(stream)
        assert stream.completion is None
    pieces += [step.result(), *stream]
    assert "".join(piece.text for piece in pieces) == stream.completion.text
    same(stream.completion, llm.generate(PROMPT, PARAMS))
    assert llm.target.num_open == 0


@pytest.mark.parametrize("how", ["generate", "send"])
def test_a_session_waits_for_the_step_too(llm, monkeypatch, how):
    session = llm.session()
    stream = (session.stream if how == "generate" else session.stream_send)("one", PARAMS)
    pieces = [next(stream)]
    with in_a_step(llm, monkeypatch, lambda: next(stream)) as step:
        with pytest.raises(OptionError, match="still in a step"):
            getattr(session, how)("two", PARAMS)
        session.close()
        session.close()
        assert llm.target.num_open == 1
    generated(stream, [*pieces, step.result()])
    assert llm.target.num_open == 0


def test_a_session_can_go_on_once_the_step_has_ended(llm, monkeypatch):
    with llm.session() as session:
        stream = session.stream("one", PARAMS)
        with in_a_step(llm, monkeypatch, lambda: next(stream)) as step:
            stream.close()
        first = stream.completion
        assert first.token_ids == step.result().token_ids
        same(session.generate("two", PARAMS), llm.generate("two", PARAMS))
        assert stream.completion is first
    stream.close()
    assert llm.target.num_open == 0


def test_many_threads_over_few_streams(llm):
    """Steps and closes in any order: nothing is corrupted, every slot comes back."""
    expected = llm.generate(PROMPT, PARAMS)

    def race(number):
        stream = llm.stream(PROMPT, PARAMS)
        with ThreadPoolExecutor(2) as pool:
            if number % 2:
                pool.submit(lambda: list(zip(range(number), stream, strict=False))).result()
                pool.submit(stream.close)
            list(pool.map(lambda _: _exhaust(stream), range(2)))
        got = stream.completion
        assert got.token_ids == expected.token_ids[: len(got.token_ids)]
        assert number % 2 or got.token_ids == expected.token_ids

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(race, range(12)))
    assert llm.target.num_open == 0


def _exhaust(stream):
    while True:
        try:
            next(stream)
        except StopIteration:
            return
        except OptionError:
            continue
