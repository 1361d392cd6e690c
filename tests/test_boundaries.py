"""Where accepted runs end: end tokens, stops, the context, pages; as plain, and as cold after."""

from dataclasses import replace

import pytest

from specrt import SamplingParams
from tests.models_on_disk import golden_path
from tests.running import same
from tests.scripted import continuing, drafting, load_scripted, seeded
from tests.tiny_model import write_tiny_model

PARAMS = SamplingParams(max_tokens=60, ignore_eos=True, temperature=1.0, seed=3, logprobs=0)
PROMPT = "the rain and the hill "
GOLDEN = ("llama", "gemma3", "qwen35")


@pytest.fixture(scope="module", params=["llama", "qwen35"])
def loaded(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("tiny") / "tiny.gguf"
    return load_scripted(write_tiny_model(path, architecture=request.param))


@pytest.fixture(scope="module")
def plain(loaded):
    return loaded[0].generate(PROMPT, PARAMS)


@pytest.mark.parametrize("num_draft", [1, 3, 8])
def test_an_end_token_at_every_place_of_a_run(loaded, plain, num_draft):
    """All drafts are right, so it comes as any accepted token, and as the bonus."""
    llm, drafts = loaded
    drafts.script = continuing(plain, more=(1, 2, 3))
    places = set()
    for end in dict.fromkeys(plain.token_ids):
        first = plain.token_ids.index(end)
        params = replace(PARAMS, stop_token_ids=(end,))
        got = llm.generate(PROMPT, params, spec=drafting(num_draft))
        same(got, llm.generate(PROMPT, params))
        assert got.token_ids == plain.token_ids[: first + 1]
        assert got.finish_reason == "stop"
        places.add(first % (num_draft + 1))
    assert places == set(range(num_draft + 1))


@pytest.mark.parametrize("num_right", range(5))
def test_an_end_token_as_the_correction(loaded, plain, num_right):
    llm, drafts = loaded
    drafts.script = continuing(plain, right=lambda: num_right)
    corrected = 0
    for end in dict.fromkeys(plain.token_ids):
        first = plain.token_ids.index(end)
        params = replace(PARAMS, stop_token_ids=(end,))
        same(llm.generate(PROMPT, params, spec=drafting(5)), llm.generate(PROMPT, params))
        corrected += first % (num_right + 1) == num_right
    assert corrected > 3


@pytest.mark.parametrize("num_right", [0, 1, 4, 7])
def test_a_drafted_end_that_the_target_does_not_want_ends_nothing(loaded, plain, num_right):
    """End tokens of the file, of the caller, and the ids that would spell a stop string."""
    llm, drafts = loaded
    stop = "zq"
    assert stop not in plain.text
    eos, own = llm.tokenizer.eos_id, next(i for i in range(200) if i not in plain.token_ids)
    params = replace(PARAMS, ignore_eos=False, stop_token_ids=(own,), stop=(stop,))
    expected = llm.generate(PROMPT, params)
    truth = continuing(plain)
    for ends in ([eos], [own], llm.tokenizer.encode(stop)):
        drafts.script = lambda c, ends=ends: truth(c)[:num_right] + ends + truth(c)[num_right:]
        got = llm.generate(PROMPT, params, spec=drafting(8))
        same(got, expected)
        assert got.stats.num_drafted > got.stats.num_accepted


def ended(llm, end):
    """How to generate until such an end comes after some tokens, and what would come without it."""
    letters = llm.tokenizer.encode("abcdefghijklmnopqrstuvwxyz")
    bias = dict.fromkeys(letters, 20.0) | {llm.tokenizer.eos_id: 18.5}
    for seed in range(100):
        endless = replace(PARAMS, logit_bias=bias, seed=seed)
        whole = llm.generate(PROMPT, endless)
        params = {
            "end token": replace(endless, stop_token_ids=(whole.token_ids[11],)),
            "file's end": replace(endless, ignore_eos=False),
            "stop string": replace(endless, stop=(whole.text[12:15],)),
            "max_tokens": replace(endless, max_tokens=13),
        }[end]
        plain = llm.generate(PROMPT, params)
        if 3 < len(plain.token_ids) < 20:
            return params, plain, whole
    raise AssertionError("no such end came")


@pytest.mark.parametrize("num_draft", [16, 64])
@pytest.mark.parametrize("end", ["end token", "file's end", "stop string", "max_tokens"])
def test_the_turn_after_an_end_inside_a_run_prefills_only_what_is_new(loaded, end, num_draft):
    llm, drafts = loaded
    params, plain, whole = ended(llm, end)
    assert plain.finish_reason == ("length" if end == "max_tokens" else "stop")
    drafts.script = continuing(whole, more=(1, 2, 3))
    consumed = plain.prompt_token_ids + plain.token_ids[:-1]
    turn = [*consumed, plain.token_ids[-1], 5, 6, 7]
    with llm.session() as session:
        same(session.generate(PROMPT, params, spec=drafting(num_draft)), plain)
        assert session.cached_tokens == len(consumed)
        got = session.generate(turn, PARAMS, spec=drafting(num_draft))
    assert got.stats.cached_tokens == len(consumed)
    same(got, llm.generate(turn, PARAMS))


@pytest.mark.parametrize("num_draft", [1, 2, 5, 16])
def test_streams_show_whole_characters_and_in_all_the_text(loaded, num_draft):
    """The text is of three bytes that make a character now and then, and often a broken one."""
    llm, drafts = loaded
    bias = {token: 100.0 for token in llm.tokenizer.encode("€")}
    params = replace(PARAMS, logit_bias=bias, max_tokens=200, temperature=3.0)
    plain = llm.generate(PROMPT, params)
    broken = plain.text.count("\ufffd")
    assert broken > 30 and len(plain.text) - broken > 10
    ends_inside = 0
    for seed in range(5):
        drafts.script = continuing(plain, seeded(seed, num_draft))
        shown, ids = "", []
        stream = llm.stream(PROMPT, params, spec=drafting(num_draft))
        for piece in stream:
            shown += piece.text
            ids += piece.token_ids
            assert plain.text.startswith(shown)
            ends_inside += shown != llm.tokenizer.decode(ids)
        assert shown == plain.text
        same(stream.completion, plain)
    assert ends_inside


@pytest.mark.parametrize("missing", range(1, 15))
@pytest.mark.parametrize("name", GOLDEN)
def test_prompts_that_nearly_fill_a_context_of_no_whole_pages(golden, name, missing):
    llm, drafts = golden[name]
    ids = list(range(100, 200))[: 100 - missing]
    params = replace(PARAMS, max_tokens=None)
    plain = llm.generate(ids, params)
    assert (len(plain.token_ids), plain.finish_reason) == (missing, "length")
    for num_draft in (1, 16, 64):
        drafts.script = continuing(plain, more=(1,) * 64)
        same(llm.generate(ids, params, spec=drafting(num_draft)), plain)
        same(llm.generate([ids, ids], params, spec=drafting(num_draft))[1], plain)


@pytest.fixture(scope="module")
def golden():
    return {name: load_scripted(golden_path(name), context=100) for name in GOLDEN}


@pytest.mark.parametrize("name", GOLDEN)
@pytest.mark.parametrize("kept", range(61, 68))
def test_rejection_over_the_end_of_a_page_then_a_turn_that_shares_the_prefix(golden, name, kept):
    """Rejected rows lie on both sides of position 64 when the next turn takes the prefix up."""
    llm, drafts = golden[name]
    ids = list(range(150, 150 + kept - 6))
    params = replace(PARAMS, max_tokens=7)
    plain = llm.generate(ids, params)
    drafts.script = continuing(plain, right=lambda: 0)
    with llm.session() as session:
        same(session.generate(ids, params, spec=drafting(16)), plain)
        assert session.cached_tokens == kept
        turn = plain.prompt_token_ids + plain.token_ids[:6] + [3, 4, 5]
        got = session.generate(turn, PARAMS, spec=drafting(16))
    assert got.stats.cached_tokens == kept
    same(got, llm.generate(turn, PARAMS))


@pytest.mark.parametrize("num_draft", [1, 6, 64])
def test_a_drafter_that_has_nothing_at_random_steps(loaded, plain, num_draft):
    llm, drafts = loaded
    for seed in range(4):
        right, some = continuing(plain, seeded(seed, min(num_draft, 6))), seeded(seed + 9, 1)
        drafts.script = lambda c, right=right, some=some: right(c) if some() else []
        got = llm.generate(PROMPT, PARAMS, spec=drafting(num_draft))
        same(got, plain)
        assert 0 < got.stats.draft_steps < got.stats.steps
