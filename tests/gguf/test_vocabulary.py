"""Special pieces, end tokens, BOS and EOS, and vocabularies that contradict themselves."""

import gguf
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from vocabulary_files import BYTES, CONTROL, NORMAL, USER_DEFINED, Files, names

from specrt.errors import FormatError, MismatchError, SpecrtError
from specrt.gguf.reader import open_gguf
from specrt.gguf.tokenizer import load_tokenizer


@pytest.fixture
def files(tmp_path):
    return Files(tmp_path)


def test_control_text_is_plain_unless_asked_for_and_user_defined_is_always_whole(files):
    tokenizer = files.byte_level()
    text = "<|im_start|>low<tag><|im_end|>"
    ids = tokenizer.encode(text, parse_special=True)
    assert names(tokenizer, ids) == ["<|im_start|>", "low", "<tag>", "<|im_end|>"]
    plain = tokenizer.encode(text)
    assert "<tag>" in names(tokenizer, plain)
    assert not {"<|im_start|>", "<|im_end|>"} & set(names(tokenizer, plain))
    assert tokenizer.decode(plain) == text
    assert tokenizer.decode(ids) == "low<tag>"
    assert tokenizer.decode(ids, skip_special=False) == text


def test_the_longest_special_piece_wins_and_a_near_miss_is_text(files):
    pieces = [("a", NORMAL), ("<", NORMAL), ("<x", USER_DEFINED), ("<xa>", USER_DEFINED)]
    tokenizer = files.load("llama", [*pieces, *BYTES], scores=[0.0] * 260, add_space_prefix=False)
    assert tokenizer.encode("<xa><xa<a") == [3, 2, 0, 1, 0]


@pytest.mark.parametrize("in_file", [None, False, True])
@pytest.mark.parametrize("asked", [None, False, True])
def test_bos_is_as_asked_else_as_the_file_says_else_as_its_kind_does(files, in_file, asked):
    keys = {} if in_file is None else {"add_bos_token": in_file}
    for pre, kind_adds in (("llama-bpe", True), ("qwen2", False)):
        tokenizer = files.byte_level(pre=pre, bos_token_id=262, **keys)
        adds = next(v for v in (asked, in_file, kind_adds) if v is not None)
        assert tokenizer.encode("", add_bos=asked) == [262] * adds
    tokenizer = files.sentence_piece(**keys)
    adds = next(v for v in (asked, in_file, True) if v is not None)
    assert tokenizer.encode("", add_bos=asked) == [1] * adds


def test_eos_comes_last_where_the_file_says_so(files):
    tokenizer = files.sentence_piece(add_eos_token=True)
    a = tokenizer.encode("a", add_bos=False)
    assert 2 not in a
    assert tokenizer.encode("a") == tokenizer.encode("a", add_bos=True) == [1, *a, 2]
    assert files.sentence_piece().encode("a") == [1, *a]


def test_end_ids_are_those_named_and_the_special_pieces_known_to_end(files):
    pieces = [("a", NORMAL), ("<|im_end|>", CONTROL), ("<end_of_turn>", USER_DEFINED)]
    pieces += [("</s>", USER_DEFINED), ("<|eot_id|>", NORMAL), ("X", CONTROL), ("Y", NORMAL)]
    keys = {"merges": ["a a"], "ggml__pre": "gpt-2"}
    assert files.load("gpt2", pieces, **keys).end_ids == {1, 2}
    named = files.load("gpt2", pieces, eos_token_id=5, eot_token_id=6, eom_token_id=0, **keys)
    assert (named.end_ids, named.eos_id, named.bos_id) == ({0, 1, 2, 5, 6}, 5, None)
    pieces[3] = ("</s>", CONTROL)
    assert files.load("gpt2", pieces, **keys).end_ids == {1, 2, 3}
    # An end token is no text, whatever its type says.
    assert named.token_bytes(2) == named.token_bytes(6) == b""
    assert named.encode("Y", parse_special=True) == [6]


def test_the_chat_template_and_the_size_are_the_files(files):
    tokenizer = files.byte_level(chat_template="{{ messages }}")
    assert (tokenizer.chat_template, tokenizer.has_text) == ("{{ messages }}", True)
    assert tokenizer.vocab_size == 256 + 6 + 3
    assert files.gemma4().chat_template is None


def test_wrong_files_are_refused_by_key(files):
    pieces = [("a", NORMAL), ("b", NORMAL)]
    with pytest.raises(FormatError, match=r"eos_token_id is 2, expected an id below 2"):
        files.load("llama", pieces, scores=[0.0, 0.0], eos_token_id=2)
    with pytest.raises(MismatchError, match=r"add_bos_token is true.*bos_token_id"):
        files.load("llama", pieces, scores=[0.0, 0.0], add_bos_token=True)
    with pytest.raises(FormatError, match=r"scores has 1 entries.*2 tokens"):
        files.load("llama", pieces, scores=[0.0]).encode("a")
    with pytest.raises(MismatchError, match=r"scores"):
        files.load("llama", pieces).encode("a")
    with pytest.raises(MismatchError, match=r"merges"):
        files.load("gpt2", pieces, ggml__pre="gpt-2").encode("a")
    with pytest.raises(FormatError, match=r"token 0 is a byte spelled b'zz'"):
        files.load("llama", [("zz", 6)], scores=[0.0]).encode("a")


def test_types_may_be_missing(tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "x.gguf", "llama")
    writer.add_tokenizer_model("llama")
    writer.add_token_list(["a", "b"])
    writer.add_token_scores([0.0, 0.0])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    assert load_tokenizer(open_gguf(tmp_path / "x.gguf")).encode("ab", add_bos=False) == [0, 1]


@pytest.mark.parametrize("kind", ["byte_level", "sentence_piece", "gemma4"])
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_file_works_or_gives_a_typed_error(files, kind, data):
    getattr(files, kind)(bos_token_id=1, unknown_token_id=0, add_bos_token=True)
    whole = bytearray(files.path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    files.path.write_bytes(whole)
    try:
        tokenizer = load_tokenizer(open_gguf(files.path))
        ids = tokenizer.encode("low <s>ab\n\u00e9<tag>", parse_special=True)
        assert isinstance(tokenizer.decode(ids, skip_special=False), str)
    except SpecrtError:
        pass
