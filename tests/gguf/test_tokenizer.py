"""Tokenizers of small vocabularies, against ids worked out by hand and a plain merge loop."""

import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from vocabulary_files import CONTROL, NORMAL, SPACE, UNUSED, Files, names

from specrt.errors import UnsupportedError
from specrt.gguf.reader import open_gguf
from specrt.gguf.tokenizer import load_tokenizer
from specrt.pull import cached

GOLDEN = Path(__file__).parents[1] / "golden/tokenizer"
KINDS = ("byte_level", "sentence_piece", "gemma4")


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    return {kind: getattr(Files(tmp_path_factory.mktemp(kind)), kind)() for kind in KINDS}


@pytest.fixture
def files(tmp_path):
    return Files(tmp_path)


# --- byte-level BPE


def test_merges_go_by_rank_then_from_the_left(shared):
    tokenizer = shared["byte_level"]
    # "l o" comes before "o w", and "lo w" joins them; " low" needs the space's own merge.
    assert names(tokenizer, tokenizer.encode("low ow lower")) == ["low", " ", "ow", " low", "er"]
    assert names(tokenizer, tokenizer.encode("llool")) == ["l", "lo", "o", "l"]
    assert names(tokenizer, tokenizer.encode("lower")) == ["lower"]


def test_words_are_not_merged_across(shared):
    assert names(shared["byte_level"], shared["byte_level"].encode("lo1w")) == ["lo", "1", "w"]


def test_whole_words_skip_the_merges_in_llama_3_and_glm_alone(files):
    # No merge leads to "abc".
    pieces = [(c, NORMAL) for c in ("a", "b", "c", "abc", "ab")] + [("<bos>", CONTROL)]
    for pre, expected in (("llama-bpe", [3]), ("glm4", [3]), ("qwen2", [4, 2]), ("gpt-2", [4, 2])):
        tokenizer = files.load("gpt2", pieces, merges=["a b"], ggml__pre=pre)
        assert tokenizer.encode("abc") == expected


def test_of_equal_merges_the_first_counts_and_broken_ones_are_passed_over(files):
    pieces = [(c, NORMAL) for c in ("a", "b", "c", "ab", "bc", "x")]
    merges = ["", "a", "a ", " a", "ab", "a z", "z b", "a c", "b c", "a b", "b c"]
    tokenizer = files.load("gpt2", pieces, merges=merges, ggml__pre="gpt-2")
    assert tokenizer.encode("abc") == [0, 4]
    assert tokenizer.encode("acx") == [0, 2, 5]  # "ac" is no piece


def test_a_byte_outside_the_vocabulary_is_dropped(files):
    tokenizer = files.load("gpt2", [("a", NORMAL)], merges=["a a"], ggml__pre="gpt-2")
    assert tokenizer.encode("a\u00e9a") == [0, 0]


def test_unknown_splitter_and_unknown_model_are_named(files):
    with pytest.raises(UnsupportedError, match=r"'frobnicate'.*smollm"):
        files.byte_level(pre="frobnicate")
    with pytest.raises(UnsupportedError, match=r"missing.*smollm"):
        files.load("gpt2", [("a", NORMAL)], merges=["a a"])
    with pytest.raises(UnsupportedError, match=r"'t5'.*gemma4.*gpt2"):
        files.load("t5", [("a", NORMAL)])


# --- SentencePiece


def test_merges_go_by_score_then_from_the_left(shared):
    tokenizer = shared["sentence_piece"]
    # "bc" (-1) before "ab" (-2); then nothing joins "a" but "abc" (-6).
    assert names(tokenizer, tokenizer.encode("abc", add_bos=False)) == [" ", "abc"]
    assert names(tokenizer, tokenizer.encode("xaaa", add_bos=False)) == [" ", "x", "aa", "a"]
    assert names(tokenizer, tokenizer.encode("a", add_bos=False)) == [" a"]


def test_bytes_stand_for_characters_outside_the_vocabulary(shared):
    tokenizer = shared["sentence_piece"]
    assert tokenizer.encode("é€", add_bos=False)[-3:] == [3 + b for b in "€".encode()]
    assert names(tokenizer, tokenizer.encode("é€", add_bos=False))[1] == "é"


def test_without_byte_pieces_a_character_is_unknown(files):
    pieces = [("<unk>", 2), (SPACE, NORMAL), ("a", NORMAL)]
    tokenizer = files.load("llama", pieces, scores=[0.0, -1.0, -2.0], unknown_token_id=0)
    assert tokenizer.encode("aé") == [1, 2, 0, 0]


def test_plain_text_never_becomes_a_control_or_byte_piece(shared):
    # "<s" is a piece, so that "<s" + ">" would join to the control token.
    tokenizer = shared["sentence_piece"]
    assert names(tokenizer, tokenizer.encode("<s>", add_bos=False)) == [" ", "<s", ">"]
    assert tokenizer.decode(tokenizer.encode("<0x41>")) == "<0x41>"


def test_a_space_goes_before_a_text_and_after_a_special_piece(files):
    tokenizer = files.sentence_piece()
    ids = tokenizer.encode("a</s>a", parse_special=True)
    assert names(tokenizer, ids) == ["<s>", " a", "</s>", " a"]
    assert tokenizer.decode(ids) == "a a"
    bare = files.sentence_piece(add_space_prefix=False)
    assert names(bare, bare.encode("a a", add_bos=False)) == ["a", " a"]
    assert bare.decode(bare.encode(" a")) == " a"


def test_a_nan_score_never_merges(files):
    pieces = [("a", NORMAL), ("aa", NORMAL)]
    tokenizer = files.load("llama", pieces, scores=[0.0, float("nan")], add_space_prefix=False)
    assert tokenizer.encode("aaa") == [0, 0, 0]


def _by_plain_loop(pieces: dict[str, float], text: str) -> list[str]:
    """Join the best-scored, then leftmost pair until there is none."""
    parts = list(text)
    while True:
        joins = [(-pieces[a + b], i) for i, (a, b) in enumerate(pairwise(parts)) if a + b in pieces]
        if not joins:
            return parts
        i = min(joins)[1]
        parts[i : i + 2] = [parts[i] + parts[i + 1]]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_score_merges_equal_a_plain_loop(tmp_path, data):
    texts = st.text("ab\u00e9", min_size=2, max_size=6)
    joined = data.draw(st.lists(texts, unique=True, max_size=20))
    names = ["a", "b", "\u00e9", *joined]
    scores = [float(data.draw(st.integers(-5, 0))) for _ in names]
    tokenizer = Files(tmp_path).load(
        "llama", [(n, NORMAL) for n in names], scores=scores, add_space_prefix=False
    )
    text = data.draw(st.text("ab\u00e9", max_size=60))
    parts = _by_plain_loop(dict(zip(names, scores, strict=True)), text)
    assert [names[i] for i in tokenizer.encode(text)] == parts


# --- Gemma 4


def test_gemma_4_merges_by_rank_over_lines(shared):
    tokenizer = shared["gemma4"]
    assert names(tokenizer, tokenizer.encode("ab ab", add_bos=False)) == ["ab", " ab"]
    assert names(tokenizer, tokenizer.encode(" a b", add_bos=False)) == [" a", " ", "b"]


def test_gemma_4_takes_a_run_of_newlines_whole_or_one_by_one(shared):
    tokenizer = shared["gemma4"]
    assert names(tokenizer, tokenizer.encode("a\n\n\nb", add_bos=False)) == ["a", "\n\n\n", "b"]
    assert names(tokenizer, tokenizer.encode("\n\n\n\n", add_bos=False)) == ["\n"] * 4
    assert names(tokenizer, tokenizer.encode("\u00e9", add_bos=False)) == ["0xc3", "0xa9"]


def test_gemma_4_adds_bos_unless_told_otherwise(files):
    assert files.gemma4().encode("a") == [2, 260]
    assert files.gemma4().encode("a", add_bos=False) == [260]


# --- back to text


def test_token_bytes_of_unused_pieces_and_of_ids_beyond_the_pieces_are_empty(files):
    tokenizer = files.load(
        "gpt2", [("a", NORMAL), ("b", UNUSED)], merges=["a a"], ggml__pre="gpt-2"
    )
    assert [tokenizer.token_bytes(i) for i in (0, 1, 2, -1, 10**9)] == [b"a", b"", b"", b"", b""]


def test_a_continuation_keeps_the_space_that_a_text_loses(shared):
    tokenizer = shared["sentence_piece"]
    ids = tokenizer.encode("a a", add_bos=False)
    assert tokenizer.decode(ids) == "a a"
    assert b"".join(map(tokenizer.token_bytes, ids)) == b" a a"


@pytest.mark.parametrize("kind", KINDS)
@given(text=st.text() | st.text("abclower <s>\n\u2028é日"), special=st.booleans())
def test_text_survives_the_round_trip(shared, kind, text, special):
    tokenizer = shared[kind]
    ids = tokenizer.encode(text, parse_special=special)
    if special:
        return
    # U+2581 is how SentencePiece spells a space, so it comes back as one.
    expected = text if kind == "byte_level" else text.replace(SPACE, " ")
    assert tokenizer.decode(ids) == expected
    start = " " if kind == "sentence_piece" and text else ""
    assert b"".join(map(tokenizer.token_bytes, ids)) == (start + expected).encode()


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_decode_is_the_bytes_of_the_tokens(shared, kind, data):
    tokenizer = shared[kind]
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocab_size + 3), max_size=30))
    joined = b"".join(map(tokenizer.token_bytes, ids))
    if kind == "sentence_piece":
        joined = joined.removeprefix(b" ")
    assert tokenizer.decode(ids) == joined.decode(errors="replace")


def test_lone_surrogates_are_question_marks(shared):
    for tokenizer in shared.values():
        assert tokenizer.decode(tokenizer.encode("a\ud800b")) == "a?b"


@pytest.mark.parametrize("model", ["test", "none", "no_vocab"])
def test_without_text_there_are_ids(files, model):
    tokenizer = files.load(model, [("a", NORMAL), ("b", NORMAL)], eos_token_id=1)
    assert (tokenizer.has_text, tokenizer.vocab_size) == (False, 2)
    assert (tokenizer.end_ids, tokenizer.bos_id, tokenizer.chat_template) == ({1}, None, None)
    assert (tokenizer.decode([0, 1]), tokenizer.token_bytes(0)) == ("", b"")
    with pytest.raises(UnsupportedError, match="pass a list of token ids"):
        tokenizer.encode("a")


# --- a real file


@pytest.mark.real_model
@pytest.mark.parametrize(
    ("name", "golden", "end_ids"),
    [
        ("smollm2-135m", "smollm2.json", {0, 2, 4}),
        ("gemma3-270m", "gemma3-270m.json", {1, 106}),
    ],
)
def test_real_vocabularies_give_the_ids_of_the_golden_texts(name, golden, end_ids):
    path = cached(name)
    if path is None:
        pytest.skip(f"needs: python -m specrt pull {name}")
    tokenizer = load_tokenizer(open_gguf(path))
    for case in json.loads((GOLDEN / golden).read_text()):
        assert tokenizer.encode(case["text"], parse_special=True) == case["ids_parse_special"]
        assert tokenizer.encode(case["text"]) == case["ids_no_special"]
        assert tokenizer.decode(case["ids_no_special"]) == case["text"]
    assert tokenizer.end_ids == end_ids
