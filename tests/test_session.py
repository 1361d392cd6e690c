"""Sessions: cached prefixes, turns, rewinds, save and load."""

import json

import numpy as np
import pytest

import specrt
from specrt import SamplingParams, Session
from specrt.errors import FormatError, MismatchError, OptionError, SpecrtError
from tests.models_on_disk import golden_arrays, load_golden
from tests.tiny_model import write_tiny_model

PARAMS = SamplingParams(max_tokens=30, ignore_eos=True, temperature=1.0, seed=9, logprobs=1)


@pytest.fixture(scope="module")
def llm(tmp_path_factory):
    path = write_tiny_model(tmp_path_factory.mktemp("tiny") / "tiny.gguf")
    return specrt.load(path, spec="ngram", verbose=False)


def equal(got, expected):
    assert got.token_ids == expected.token_ids
    assert got.text == expected.text
    assert got.logprobs == expected.logprobs


def test_a_turn_prefills_only_what_is_new(llm):
    with llm.session() as session:
        first = session.generate([5, 6, 7, 8] * 4, PARAMS)
        consumed = session.cached_tokens
        assert consumed == 16 + 30 - 1
        ids = first.prompt_token_ids + first.token_ids + [9, 9, 9]
        second = session.generate(ids, PARAMS)
        assert second.stats.cached_tokens == consumed
        equal(second, llm.generate(ids, PARAMS, spec="none"))


def test_a_diverging_turn_keeps_the_common_prefix(llm):
    ids = list(range(40, 90))
    with llm.session() as session:
        session.generate(ids, PARAMS)
        for common in (49, 30, 1, 0):
            turn = ids[:common] + [3] * 5
            got = session.generate(turn, PARAMS)
            assert got.stats.cached_tokens == common
            equal(got, llm.generate(turn, PARAMS, spec="none"))
            session.generate(ids, PARAMS)


def test_chat_turns(llm):
    with llm.session() as session:
        messages = []
        for text in ("hello", "and the rain", "again"):
            got = session.send(text, PARAMS)
            messages.append({"role": "user", "content": text})
            equal(got, llm.chat(messages, PARAMS, spec="none"))
            messages.append({"role": "assistant", "content": got.text})
            assert session.messages == messages
        assert got.stats.cached_tokens > 20


def test_an_interrupted_turn_is_no_turn(llm):
    with llm.session() as session:
        session.send("hello", PARAMS)
        messages = session.messages
        stream = session.stream_send("never answered", PARAMS)
        next(stream)
        stream.close()
        assert session.messages == messages
        got = session.send("and now", PARAMS)
        equal(
            got, llm.chat([*messages, {"role": "user", "content": "and now"}], PARAMS, spec="none")
        )


@pytest.mark.parametrize("max_tokens", [1, 4])
def test_a_finished_answer_joins_before_its_last_piece_is_given_out(llm, max_tokens):
    params = SamplingParams(max_tokens=max_tokens, ignore_eos=True)
    with llm.session() as session:
        with session.stream_send("hello", params, spec="none") as stream:
            for _ in range(max_tokens):
                assert session.messages == []
                next(stream)
            messages = session.messages
        text = stream.completion.text
        assert stream.completion.finish_reason == "length"
        assert messages == session.messages
        assert messages == [
            {"role": "user", "content": "hello"},
            {"role": "assistant", "content": text},
        ]


@pytest.mark.parametrize("kv_type", ["f32", "f16", "q8_0"])
@pytest.mark.parametrize("name", ["llama", "gemma3", "qwen35", "muse-glimmer"])
def test_a_saved_session_goes_on_bit_for_bit(name, kv_type, tmp_path):
    llm = load_golden(name, kv_type=kv_type, spec="ngram")
    ids = golden_arrays(name)["tokens"].tolist()
    with llm.session() as session:
        turn = session.generate(ids, PARAMS)
        ids = ids + turn.token_ids + ids[:7]
        session.save(tmp_path / "saved")
        expected = session.generate(ids, PARAMS)
    other = load_golden(name, kv_type=kv_type, spec="ngram")
    with Session.load(other, tmp_path / "saved") as restored:
        got = restored.generate(ids, PARAMS)
    assert got.stats.cached_tokens == expected.stats.cached_tokens > 50
    equal(got, expected)


def test_a_restored_sliding_session_rewinds_only_as_far_as_it_can(tmp_path):
    llm = load_golden("gemma3")
    ids = golden_arrays("gemma3")["tokens"].tolist()
    with llm.session() as session:
        session.generate(ids, PARAMS)
        session.save(tmp_path / "saved")
    with Session.load(llm, tmp_path / "saved") as restored:
        turn = [*ids[:40], 1, 2]
        got = restored.generate(turn, PARAMS)
        assert got.stats.cached_tokens == 0
        equal(got, llm.generate(turn, PARAMS))


def test_a_session_of_another_model_or_kv_type_is_refused(tmp_path):
    with load_golden("llama").session() as session:
        session.generate([1, 2, 3], PARAMS)
        session.save(tmp_path / "saved")
    for other in (load_golden("qwen3"), load_golden("llama", kv_type="f16")):
        with pytest.raises(MismatchError, match="saved"):
            Session.load(other, tmp_path / "saved")
        assert other.target.num_open == 0


@pytest.mark.parametrize("damage", ["missing", "text", "truncated", "other"])
def test_a_damaged_file_is_refused(llm, damage, tmp_path):
    path = tmp_path / "saved"
    with llm.session() as session:
        session.generate([1, 2, 3], PARAMS)
        session.save(path)
    if damage == "missing":
        path.unlink()
    elif damage == "text":
        path.write_text("no session")
    elif damage == "truncated":
        path.write_bytes(path.read_bytes()[:500])
    else:
        np.savez(path.open("wb"), something=np.zeros(3))
    with pytest.raises(FormatError, match=r"Session\.save"):
        Session.load(llm, path)


def test_a_failed_save_leaves_the_old_file(llm, tmp_path, monkeypatch):
    path = tmp_path / "saved"
    with llm.session() as session:
        session.generate([1, 2, 3], PARAMS)
        session.save(path)
        before = path.read_bytes()

        def fail(*args, **kwargs):
            raise KeyboardInterrupt

        monkeypatch.setattr(np, "savez", fail)
        with pytest.raises(KeyboardInterrupt):
            session.save(path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["saved"]


def test_a_closed_session_says_so(llm):
    session = llm.session()
    session.close()
    session.close()
    with pytest.raises(OptionError, match="closed"):
        session.generate([1], PARAMS)


def test_an_empty_prompt_is_refused_before_it_reaches_the_model(tmp_path):
    path = write_tiny_model(tmp_path / "tiny.gguf", template=None)
    llm = specrt.load(path, verbose=False)
    with llm.session() as session, pytest.raises(OptionError, match="no tokens"):
        session.send("", PARAMS)
    with pytest.raises(OptionError, match="no tokens"):
        llm.chat([{"role": "user", "content": ""}], PARAMS)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("tokens", lambda a: a.astype(np.float32)),
        ("tokens", lambda a: a * 0 + 99_999),
        ("k0", lambda a: a[..., :-1]),
        ("k0", lambda a: a.astype(np.float64)),
        ("v1", lambda a: a[:-1]),
        ("v1", None),
        ("messages", 3),
        ("messages", None),
    ],
)
def test_a_file_that_no_model_can_have_saved_is_refused(llm, name, change, tmp_path):
    path = tmp_path / "saved"
    with llm.session() as session:
        session.generate([1, 2, 3], PARAMS)
        session.save(path)
    with np.load(path) as file:
        arrays = {key: file[key] for key in file.files}
    if name == "messages":
        header = json.loads(arrays["header"].tobytes())
        header.pop("messages")
        if change is not None:
            header["messages"] = change
        arrays["header"] = np.frombuffer(json.dumps(header).encode(), np.uint8)
    elif change is None:
        del arrays[name]
    else:
        arrays[name] = change(arrays[name])
    with path.open("wb") as file:
        np.savez(file, **arrays)
    with pytest.raises(SpecrtError):
        Session.load(llm, path)
    assert llm.target.num_open == 0


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("state0", lambda a: a[..., :-1]),
        ("tail1", lambda a: a[1:]),
        ("log_k0", lambda a: a[1:]),
        ("log_u1", lambda a: a.astype(np.float64)),
        ("log_decay0", lambda a: np.float32(1)),
        ("log_decay0", lambda a: np.concatenate([a] * 300)),
        ("log_decay0", lambda a: a[:0]),
        ("log_decay0", None),
    ],
)
def test_a_file_of_a_hybrid_that_no_model_can_have_saved_is_refused(name, change, tmp_path):
    llm, path = load_golden("qwen35"), tmp_path / "saved"
    with llm.session() as session:
        session.generate([1, 2, 3], PARAMS)
        session.save(path)
    with np.load(path) as file:
        arrays = {key: file[key] for key in file.files}
    changed = {} if change is None else {name: change(arrays[name])}
    del arrays[name]
    with path.open("wb") as file:
        np.savez(file, **arrays, **changed)
    with pytest.raises(MismatchError, match="saved state"):
        Session.load(llm, path)
    assert llm.target.num_open == 0
