"""The same request again, after others, beside others, after a break: text and acceptance as alone.

The governor is off where acceptance is compared, since it goes by time.
"""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import chisquare

from specrt import SamplingParams, Session
from specrt.state.messages import FINAL_HIDDEN, residual_entering
from tests.models_on_disk import golden_arrays, golden_path
from tests.running import same
from tests.scripted import continuing, drafting, load_scripted, seeded
from tests.tiny_model import write_tiny_model

PARAMS = SamplingParams(max_tokens=60, ignore_eos=True, temperature=0.4, seed=3, logprobs=1)
# Of few letters, so that n-grams find something; the tiny model's first 256 ids are the bytes.
LETTERS = replace(PARAMS, logit_bias={ord(letter): 20.0 for letter in "ab"}, temperature=1.0)
TEXT = "the rain on the hill and the rain on the other hill and the rain "
NGRAM = drafting(6, "ngram")


@pytest.fixture(scope="module", params=["llama", "qwen35"])
def loaded(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("tiny") / "tiny.gguf"
    return load_scripted(write_tiny_model(path, architecture=request.param))


@pytest.fixture
def rewinds(request):
    """True unless states are in the way: they know no way back past the rows that are pending."""
    return request.node.callspec.params["loaded"] != "qwen35"


@pytest.fixture
def llm(loaded):
    return loaded[0]


def same_with_acceptance(got, expected):
    same(got, expected)
    for count in ("num_draft_counts", "drafted_at", "accepted_at", "origins", "speculator"):
        assert getattr(got.stats, count) == getattr(expected.stats, count)
    assert 5 < got.stats.num_accepted < got.stats.num_drafted


def test_a_b_a(llm):
    first = llm.generate(TEXT, LETTERS, spec=NGRAM)
    other = llm.generate(TEXT[::-1] * 3, LETTERS, spec=NGRAM)
    assert other.token_ids != first.token_ids
    same_with_acceptance(llm.generate(TEXT, LETTERS, spec=NGRAM), first)


def test_the_same_prompt_again_is_not_drafted_from_the_earlier_answer(llm, rewinds):
    """In sequences of their own, and in a session that keeps the prompt."""
    first = llm.generate(TEXT, LETTERS, spec=NGRAM)
    same_with_acceptance(llm.generate(TEXT, LETTERS, spec=NGRAM), first)
    with llm.session() as session:
        for turn in range(3):
            again = session.generate(TEXT, LETTERS, spec=NGRAM)
            same_with_acceptance(again, first)
            kept = first.stats.prompt_tokens - 1 if turn and rewinds else 0
            assert again.stats.cached_tokens == kept


def test_each_of_several_slots_gives_what_it_gives_alone(llm):
    prompts = [TEXT, TEXT[9:] * 2, TEXT[::-1] * 2, "ab" * 9, TEXT]
    params = [replace(LETTERS, seed=n, max_tokens=40 + n) for n in range(5)]
    alone = [llm.generate(p, q, spec=NGRAM) for p, q in zip(prompts, params, strict=True)]
    together = llm.generate(prompts, params, spec=NGRAM)
    for got, expected in zip(together, alone, strict=True):
        same_with_acceptance(got, expected)
    streams = [llm.stream(p, q, spec=NGRAM) for p, q in zip(prompts[:3], params, strict=False)]
    while not all(stream.completion for stream in streams):
        for stream in streams:
            next(stream, None)
    for stream, expected in zip(streams, alone, strict=False):
        same_with_acceptance(stream.completion, expected)


@pytest.mark.parametrize("name", ["llama", "gemma3", "qwen35"])
def test_a_restored_session_drafts_as_one_without_the_break(name, tmp_path):
    llm, _ = load_scripted(golden_path(name))
    ids = golden_arrays(name)["tokens"].tolist()
    with llm.session() as session:
        first = session.generate(ids * 2, LETTERS, spec=NGRAM)
        session.save(tmp_path / "saved")
        turn = first.prompt_token_ids + first.token_ids + ids[3:11]
        expected = session.generate(turn, LETTERS, spec=NGRAM)
    other, _ = load_scripted(golden_path(name))
    with Session.load(other, tmp_path / "saved") as restored:
        got = restored.generate(turn, LETTERS, spec=NGRAM)
    same_with_acceptance(got, expected)
    assert got.stats.cached_tokens == expected.stats.cached_tokens > len(ids)


@pytest.mark.parametrize("wants_prompt", [True, False])
def test_after_reuse_of_a_prefix_a_drafter_hears_each_new_position_once(loaded, wants_prompt):
    llm, drafts = loaded
    drafts.wants_prompt = wants_prompt
    ids = llm.tokenizer.encode(TEXT)
    try:
        with llm.session() as session:
            for turn in (ids, [*ids, 5, 6, 7], ids[:9] + ids, ids[:9], ids + ids):
                plain = llm.generate(turn, PARAMS)
                drafts.script = continuing(plain, seeded(len(turn), 7))
                drafts.kept.clear()
                got = session.generate(turn, PARAMS, spec=drafting(7))
                same(got, plain)
                rows = [
                    (kept.start_pos + i, token)
                    for kept in drafts.kept
                    for i, token in enumerate(kept.tokens)
                ]
                whole = plain.prompt_token_ids + plain.token_ids
                start = got.stats.cached_tokens if wants_prompt else len(turn) - 1
                assert rows == list(enumerate(whole))[start:-1]
    finally:
        drafts.wants_prompt = True


@pytest.mark.parametrize("reuses", [True, False])
def test_only_who_can_arm_after_reuse_leaves_the_prefix_in_place(
    loaded, rewinds, reuses, monkeypatch
):
    llm, drafts = loaded
    monkeypatch.setattr(drafts, "can_arm_after_prefix_reuse", reuses, raising=False)
    monkeypatch.setattr(drafts, "heard", lambda sequence: min(9, sequence.cursor.cache_len))
    drafts.script, drafts.kept = lambda c: [], []
    with llm.session() as session:
        first = session.generate(TEXT, PARAMS)
        turn = [*first.prompt_token_ids, 5, 6]
        got = session.generate(turn, PARAMS, spec=drafting(4))
    kept = len(turn) - 2 if reuses else 9
    assert got.stats.cached_tokens == (kept if rewinds else 0)
    assert drafts.kept[0].start_pos == got.stats.cached_tokens
    same(got, llm.generate(turn, PARAMS))


@pytest.mark.parametrize("count", [1, 40, 300])
@pytest.mark.parametrize("name", ["llama", "qwen3", "gemma3", "qwen35"])
def test_taps_for_an_armed_drafter_change_no_bit_and_are_the_rows_own(name, count):
    """Rows of steps and of a prefill that feeds the same ids give the same taps."""
    llm, drafts = load_scripted(golden_path(name))
    ids = (golden_arrays(name)["tokens"].tolist() * 6)[:count]
    plain = llm.generate(ids, PARAMS)
    drafts.script = continuing(plain, seeded(count, 5))
    drafts.taps = frozenset({FINAL_HIDDEN, residual_entering(0), residual_entering(3)})
    heard = {tap: [] for tap in drafts.taps}

    def commit(kept):
        for tap, rows in heard.items():
            rows += [one.taps[tap].copy() for one in kept]

    drafts.commit = commit
    same(llm.generate(ids, PARAMS, spec=drafting(5)), plain)
    stepped = {tap: np.concatenate(rows) for tap, rows in heard.items()}
    for rows in heard.values():
        rows.clear()
    llm.generate(ids + plain.token_ids, SamplingParams(max_tokens=1), spec=drafting(5))
    for tap, rows in heard.items():
        num_heard = len(stepped[tap])
        assert num_heard >= count + 60 - 1 - 6  # of the last step nobody hears
        np.testing.assert_array_equal(stepped[tap], np.concatenate(rows)[:num_heard])


@pytest.mark.parametrize(
    "penalty",
    [
        {"repetition_penalty": 1.4},
        {"presence_penalty": 1.5},
        {"frequency_penalty": 0.7},
        {"presence_penalty": -1.0},
        {"repetition_penalty": 1.1, "presence_penalty": 0.5, "frequency_penalty": 0.3},
    ],
    ids=str,
)
@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_penalties_on_repetitive_text(loaded, penalty, temperature):
    llm, drafts = loaded
    params = replace(PARAMS, temperature=temperature, **penalty)
    plain = llm.generate(TEXT * 3, params)
    unpenalised = llm.generate(TEXT * 3, replace(PARAMS, temperature=temperature))
    assert plain.token_ids != unpenalised.token_ids
    same(llm.generate(TEXT * 3, params, spec=NGRAM), plain)
    for seed in range(3):
        drafts.script = continuing(plain, seeded(seed, 9))
        got = llm.generate(TEXT * 3, params, spec=drafting(9))
        same(got, plain)
        assert 0 < got.stats.num_accepted < got.stats.num_drafted


def test_argmax_drafts_do_not_bend_the_distribution(loaded):
    """Over many seeds the first two tokens are plain's, and the first follows the softmax."""
    llm, drafts = loaded
    favour = dict(
        zip(llm.tokenizer.encode("abcdef"), (30.0, 31.0, 30.5, 30.0, 29.5, 31.0), strict=True)
    )
    greedy = SamplingParams(max_tokens=2, ignore_eos=True, logit_bias=favour)
    drafts.script = continuing(llm.generate(TEXT, greedy))
    params = [replace(greedy, temperature=1.0, seed=seed) for seed in range(600)]
    prompts = [TEXT] * len(params)
    plain = [one.token_ids for one in llm.generate(prompts, params)]
    got = llm.generate(prompts, params, spec=drafting(1))
    assert [one.token_ids for one in got] == plain
    accepted = sum(one.stats.num_accepted for one in got)
    assert 50 < accepted < 500
    raw = llm.logits(llm.tokenizer.encode(TEXT))[-1].astype(np.float64)
    biased = {token: raw[token] + bias for token, bias in favour.items()}
    weights = np.exp(np.array(list(biased.values())) - max(biased.values()))
    firsts = [ids[0] for ids in plain]
    seen = [firsts.count(token) for token in biased]
    assert sum(seen) == len(params)
    assert chisquare(seen, len(params) * weights / weights.sum()).pvalue > 1e-3
