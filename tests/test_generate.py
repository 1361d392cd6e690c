"""The API over a model that writes text: streams, stop strings, batches, errors, lifetimes."""

import time
from dataclasses import replace

import numpy as np
import pytest

import specrt
from specrt import INHERIT, GovernorOptions, SamplingParams, SpecOptions
from specrt.completion import completion
from specrt.errors import ContextError, OptionError, UnsupportedError
from specrt.lossless import MixedDrafts
from specrt.speculative.governor import FixedPolicy
from specrt.speculative.registry import SpeculatorFactory, default_registry
from tests.fakes import ScriptedSpeculator
from tests.models_on_disk import load_golden
from tests.running import run, same
from tests.scripted import drafting
from tests.tiny_model import write_tiny_model

PARAMS = SamplingParams(max_tokens=80, ignore_eos=True, temperature=1.0, seed=3)
PROMPT = "the rain and the hill "


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write_tiny_model(tmp_path_factory.mktemp("tiny") / "tiny.gguf")


@pytest.fixture(scope="module")
def llm(path):
    return specrt.load(path, spec="none", verbose=False)


def drafts_of(llm, plain, seed=0) -> MixedDrafts:
    truth = plain.prompt_token_ids + plain.token_ids
    return MixedDrafts(truth, llm.target.vocab_size, seed)


def ids_of(llm, text=PROMPT) -> list[int]:
    return llm.tokenizer.encode(text)


def test_pieces_joined_are_the_text(llm):
    for spec in ("none", "ngram"):
        stream = llm.stream(PROMPT, PARAMS, spec=spec)
        pieces = list(stream)
        done = stream.completion
        assert "".join(piece.text for piece in pieces) == done.text
        assert [token for piece in pieces for token in piece.token_ids] == done.token_ids
        assert [o for piece in pieces for o in piece.origins] == done.stats.origins
        same(done, llm.generate(PROMPT, PARAMS, spec="none"))


def test_no_piece_shows_a_broken_character(llm, monkeypatch):
    """Force the text of three-byte characters, drafted in runs that end inside them."""
    monkeypatch.setattr(llm.target, "max_draw_ids", None)  # so that the sampler draws
    wanted = [ids_of(llm, "€")[i] for i in range(3)] * 9
    seen = []
    for num_draft in (1, 2, 4, 7):
        plain = forced(llm, wanted, None, 1)
        assert plain.text == "€" * 9
        drafts = ScriptedSpeculator(lambda c: wanted[c.sequence.num_generated :][: c.num_draft])
        texts = forced(llm, wanted, drafts, num_draft, seen)
        same(texts, plain)
    assert seen
    assert all(set(text) <= {"€"} for text in seen)


def forced(llm, wanted, speculator, num_draft, seen=None):
    """Generate exactly ``wanted`` through a logit bias that follows the position."""
    request = llm.generator.request(
        llm.target.open_sequence(),
        ids_of(llm),
        SamplingParams(max_tokens=len(wanted), logit_bias={0: 0.0}),
        "none",
    )

    class Forcing:
        def draw_run(self, logits, history, prompt_len, position, min_total, draft_tokens):
            right = wanted[position - prompt_len :][: len(draft_tokens) + 1]
            wrong = [i for i, token in enumerate(draft_tokens) if token != right[i]]
            return right[: (*wrong, len(draft_tokens))[0] + 1]

    request.sampler = Forcing()
    request.speculators = () if speculator is None else (speculator,)
    request.max_draft = num_draft
    request.policy = FixedPolicy(num_draft)
    for piece in llm.generator.run(request):
        if seen is not None:
            seen.append(piece.text)
    llm.target.close_sequence(request.sequence)
    return completion(request)


@pytest.mark.parametrize("num_draft", [1, 3, 8, 16])
def test_stop_strings_cut_where_plain_cuts(llm, num_draft):
    plain = llm.generate(PROMPT, PARAMS)
    raw = [llm.tokenizer.token_bytes(token) for token in plain.token_ids]
    cuts = 0
    for begin in range(2, 70, 3):
        for length in (1, 2, 5):
            stop = b"".join(raw[begin : begin + length])
            try:
                text = stop.decode()
            except UnicodeDecodeError:
                continue
            params = replace(PARAMS, stop=(text, "never to be seen"))
            expected = run(llm, plain.prompt_token_ids, params)
            assert expected.finish_reason == "stop"
            assert expected.text == plain.text[: plain.text.index(text)]
            drafts = drafts_of(llm, plain, begin)
            same(run(llm, plain.prompt_token_ids, params, drafts, num_draft), expected)
            stream = llm.stream(PROMPT, params)
            assert "".join(piece.text for piece in stream) == expected.text
            cuts += 1
    assert cuts > 10


def test_max_tokens_and_counts(llm):
    for count in (1, 2, 7):
        got = llm.generate(PROMPT, replace(PARAMS, max_tokens=count))
        assert len(got.token_ids) == got.stats.emitted == count
        assert got.finish_reason == "length"
    to_the_end = llm.generate(PROMPT, replace(PARAMS, max_tokens=None))
    assert len(to_the_end.token_ids) + len(to_the_end.prompt_token_ids) == llm.context


def test_an_end_token_is_an_id_but_no_text(llm):
    end = llm.tokenizer.eos_id
    params = SamplingParams(logit_bias={end: 100.0}, max_tokens=5)
    got = llm.generate(PROMPT, params)
    assert (got.token_ids, got.text, got.finish_reason) == ([end], "", "stop")
    ignored = llm.generate(PROMPT, replace(params, ignore_eos=True))
    assert len(ignored.token_ids) == 5


def test_logprobs_are_those_of_the_logits(llm):
    got = llm.generate(PROMPT, replace(PARAMS, logprobs=3, max_tokens=10))
    ids = got.prompt_token_ids + got.token_ids
    rows = llm.logits(ids)[len(got.prompt_token_ids) - 1 : -1].astype(np.float64)
    logs = rows - np.log(np.exp(rows).sum(axis=1, keepdims=True))
    for row, token, entry in zip(logs, got.token_ids, got.logprobs, strict=True):
        assert entry.token == token
        assert entry.logprob == pytest.approx(row[token], abs=1e-9)
        assert [t for t, _ in entry.top] == np.argsort(-row, kind="stable")[:3].tolist()


def test_seeds(llm):
    sampled = replace(PARAMS, seed=None)
    first = llm.generate(PROMPT, sampled)
    again = llm.generate(PROMPT, replace(sampled, seed=first.stats.seed))
    assert again.token_ids == first.token_ids
    assert llm.generate(PROMPT, sampled).token_ids != first.token_ids


def test_a_list_gives_a_list_and_each_equals_its_own_run(llm):
    prompts = [PROMPT * n for n in range(1, 7)]
    alone = [llm.generate(prompt, PARAMS) for prompt in prompts]
    for got, expected in zip(llm.generate(prompts, PARAMS, spec="ngram"), alone, strict=True):
        same(got, expected)
    assert llm.generate([], PARAMS) == []
    assert llm.generate([ids_of(llm)], PARAMS)[0].text == alone[0].text


def test_in_a_batch_the_first_token_comes_after_all_that_was_prefilled_before_it(path, monkeypatch):
    """Five prompts for two sequences: as a user waits, from when the batch was given."""
    llm = specrt.load(path, spec="none", max_sequences=2, verbose=False)
    clock = 0.0

    def slow(seconds, real):
        def call(*args, **keywords):
            nonlocal clock
            clock += seconds
            return real(*args, **keywords)

        return call

    monkeypatch.setattr(time, "perf_counter", lambda: clock)
    monkeypatch.setattr(llm.target, "prefill", slow(2.0, llm.target.prefill))
    monkeypatch.setattr(llm.target, "verify", slow(1.0, llm.target.verify))
    got = llm.generate([PROMPT] * 5, replace(PARAMS, max_tokens=3))
    assert [one.stats.time_to_first_token for one in got] == [5e3, 5e3, 12e3, 12e3, 17e3]
    assert llm.generate(PROMPT, PARAMS).stats.time_to_first_token == 3e3


def test_a_closed_stream_leaves_the_model_usable(llm):
    expected = llm.generate(PROMPT, PARAMS)
    for _ in range(10):
        stream = llm.stream(PROMPT, PARAMS, spec="ngram")
        next(stream)
        stream.close()
    with llm.stream(PROMPT, PARAMS) as stream:
        next(stream)
    same(llm.generate(PROMPT, PARAMS), expected)


def test_two_streams_at_a_time(llm):
    expected = llm.generate(PROMPT, PARAMS)
    streams = [llm.stream(PROMPT, PARAMS, spec=spec) for spec in ("none", "ngram")]
    while not all(stream.completion for stream in streams):
        for stream in streams:
            next(stream, None)
    for stream in streams:
        same(stream.completion, expected)


def test_too_many_streams_is_an_error(llm):
    streams = [llm.stream(PROMPT, PARAMS) for _ in range(llm.target.max_sequences)]
    with pytest.raises(ContextError, match="in use"):
        llm.stream(PROMPT, PARAMS)
    with pytest.raises(ContextError, match="in use"):
        llm.generate(PROMPT, PARAMS)
    for stream in streams:
        stream.close()
    llm.generate(PROMPT, PARAMS)


def test_closing_twice_does_not_take_another_sequence_away(llm):
    first = llm.target.open_sequence()
    llm.target.close_sequence(first)
    second = llm.target.open_sequence()
    llm.target.close_sequence(first)
    assert llm.target.num_open == 1
    llm.target.close_sequence(second)
    assert llm.target.num_open == 0


def test_an_unstarted_stream_gives_its_sequence_back(llm):
    for _ in range(10):
        llm.stream(PROMPT, PARAMS).close()


def test_chat_applies_the_template(llm):
    messages = [{"role": "user", "content": "hi <|im_end|>"}]
    got = llm.chat(messages, PARAMS, enable_thinking=False)
    text = llm.tokenizer.decode(got.prompt_token_ids, skip_special=False)
    assert text.endswith("<|im_start|>assistant\n<think></think>")
    assert llm.chat(messages, PARAMS).prompt_token_ids != got.prompt_token_ids


@pytest.mark.parametrize("prompt", ["", [], [-1], [10**6]])
def test_bad_prompts(llm, prompt):
    with pytest.raises(OptionError):
        llm.generate(prompt, PARAMS) if prompt != [] else llm.generate([[]], PARAMS)


def test_ids_only_models(llm):
    golden = load_golden("llama")
    with pytest.raises(UnsupportedError, match="ids"):
        golden.generate("text")
    assert golden.generate([1, 2, 3], SamplingParams(max_tokens=4)).text == ""


@pytest.mark.parametrize(
    "options",
    [
        {"context": 0},
        {"context": 10**6},
        {"kv_type": "f8"},
        {"device": "tpu"},
        {"threads": 0},
        {"max_sequences": 0},
        {"spec": "magic"},
        {"spec": SpecOptions(type="ngram,magic")},
    ],
    ids=str,
)
def test_bad_load_options(path, options):
    with pytest.raises(OptionError):
        specrt.load(path, verbose=False, **options)


@pytest.mark.parametrize("kv_type", ["f32", "f16", "q8_0"])
def test_kv_types_are_lossless(path, kv_type):
    llm = specrt.load(path, kv_type=kv_type, spec="none", verbose=False)
    plain = llm.generate(PROMPT, PARAMS)
    same(run(llm, plain.prompt_token_ids, PARAMS, drafts_of(llm, plain), 6), plain)


def test_a_speculator_registered_from_outside(path):
    registry = default_registry()
    toy = ScriptedSpeculator(lambda c: [1] * c.num_draft)
    toy.name = "toy"
    registry.register(SpeculatorFactory("toy", False, lambda *_: toy))
    llm = specrt.load(path, spec="toy", registry=registry, verbose=False)
    got = llm.generate(PROMPT, PARAMS)
    assert got.stats.speculator == "toy"
    assert got.stats.num_drafted > 0
    same(got, llm.generate(PROMPT, PARAMS, spec="none"))


def test_declined_reasons_are_told(llm):
    got = llm.generate(PROMPT, PARAMS, spec="ngram,draft-head")
    assert got.stats.speculator == "ngram"
    assert "draft-head" in got.stats.declined[0]
    assert llm.declined("draft-head")[0].reason


def test_load_prints_the_memory_plan(path, capsys):
    specrt.load(path)
    assert "KV per 1k tokens" in capsys.readouterr().err


def test_min_tokens_holds_stop_strings_back(llm):
    plain = llm.generate(PROMPT, PARAMS)
    stop = next(char for char in plain.text if char.isascii())
    for num_tokens in (1, 20, 50):
        params = replace(PARAMS, stop=(stop,), min_tokens=num_tokens)
        expected = run(llm, plain.prompt_token_ids, params)
        assert len(expected.token_ids) >= num_tokens
        same(run(llm, plain.prompt_token_ids, params, drafts_of(llm, plain), 8), expected)
    assert len(llm.generate(PROMPT, replace(PARAMS, stop=(stop,))).token_ids) < 20


def test_a_prompt_that_does_not_fit_is_told_before_any_work(llm, monkeypatch):
    monkeypatch.setattr(llm.target, "verify", None)
    monkeypatch.setattr(llm.target, "prefill", None)
    with pytest.raises(ContextError, match="context is 512"):
        llm.generate([[1, 2, 3], [4] * 600], PARAMS)


def test_a_closed_stream_keeps_what_was_generated(llm):
    whole = llm.generate(PROMPT, PARAMS)
    stream = llm.stream(PROMPT, PARAMS)
    for _ in range(5):
        next(stream)
    stream.close()
    assert stream.completion.finish_reason == "abort"
    assert stream.completion.token_ids == whole.token_ids[: len(stream.completion.token_ids)]
    assert len(stream.completion.token_ids) >= 5
    assert list(stream) == []


def test_dropped_sessions_and_streams_give_their_sequences_back(llm):
    for _ in range(3 * llm.target.max_sequences):
        llm.session().generate([1, 2, 3], replace(PARAMS, max_tokens=2))
        next(llm.stream(PROMPT, PARAMS))
    held = [llm.session() for _ in range(llm.target.max_sequences)]
    with pytest.raises(ContextError, match="in use"):
        llm.session()
    for session in held:
        session.close()


@pytest.mark.parametrize("prompt", [None, 7, [1.5, 2.5], {"role": "user"}])
def test_prompts_of_other_types(llm, prompt):
    with pytest.raises(OptionError, match="expected text"):
        llm.generate(prompt, PARAMS)


def test_params_of_other_types(llm):
    with pytest.raises(OptionError, match="SamplingParams"):
        llm.generate(PROMPT, {"max_tokens": 3})


def test_a_name_leaves_the_rest_to_the_environment(path, monkeypatch):
    monkeypatch.setenv("SPECRT_SPEC_DRAFT", "3")
    assert specrt.load(path, spec="ngram", verbose=False).generator.spec.num_draft == 3
    chosen = specrt.load(path, spec=SpecOptions(type="ngram"), verbose=False)
    assert chosen.generator.spec.num_draft is None
    assert specrt.load(path, spec=None, verbose=False).generator.spec.type == "none"


def test_a_name_in_a_call_changes_who_drafts_and_nothing_else(path):
    loaded = SpecOptions(governor=False, num_draft=3, pmin=0.25, ngram_max=5)
    registry = default_registry()
    toy = ScriptedSpeculator(lambda c: [1] * c.num_draft)
    registry.register(SpeculatorFactory("toy", False, lambda *_: toy))
    llm = specrt.load(path, spec=loaded, registry=registry, verbose=False)
    pmins = []
    toy.script = lambda c: pmins.append(c.pmin) or [1] * c.num_draft
    calls = (
        llm.generate,
        lambda *a, **k: llm.generate([a[0]], *a[1:], **k)[0],
        lambda *a, **k: list(stream := llm.stream(*a, **k)) and stream.completion,
        lambda prompt, *a, **k: llm.chat([{"role": "user", "content": prompt}], *a, **k),
        llm.session().generate,
        llm.session().send,
    )
    params = replace(PARAMS, max_tokens=30)
    for call in calls:
        counts = call(PROMPT, params, spec="toy").stats.num_draft_counts
        assert counts[3] > 10 and max(counts) == 3
        assert not call(PROMPT, params, spec=None).stats.num_drafted
        assert not call(PROMPT, params, spec="none").stats.num_drafted
        counts = call(PROMPT, params, spec=drafting(6)).stats.num_draft_counts
        assert counts[6] > 5
    assert set(pmins) == {0.25, None}
    assert [one.name for one in llm.declined("draft-head")] == ["draft-head"]


def test_a_name_in_a_call_leaves_the_rest_to_the_environment(path, monkeypatch):
    monkeypatch.setenv("SPECRT_SPEC_DRAFT", "3")
    llm = specrt.load(path, verbose=False)
    assert llm.generator.options("ngram") == SpecOptions(type="ngram", num_draft=3)
    assert llm.generator.options(INHERIT) == SpecOptions(num_draft=3)
    assert llm.generator.options(None) == SpecOptions(type="none")
    assert llm.generator.options(SpecOptions(pmin=0.5)) == SpecOptions(pmin=0.5)


def test_options_that_differ_in_numbers_share_a_speculator(llm):
    speculators = {
        llm.speculation.resolve(SpecOptions(type="ngram", num_draft=k, pmin=p)).speculators
        for k in (3, 9)
        for p in (None, 0.1, 0.2)
    }
    assert len(speculators) == 1


def test_what_was_resolved_and_decided_is_reported(llm):
    got = llm.generate("a b c d " * 6, SamplingParams(max_tokens=40), spec="ngram").stats
    assert (got.num_draft, got.pmin) == (8, None)
    assert got.num_parked + got.num_probes > 0 and sum(got.num_draft_counts.values()) == got.steps
    options = SpecOptions(type="ngram", num_draft=3, pmin=0.2, governor=False)
    got = llm.generate("a b c d " * 6, SamplingParams(max_tokens=40), spec=options).stats
    assert (got.num_draft, got.pmin, got.num_parked, got.num_probes) == (3, 0.2, 0, 0)
    assert llm.generate("a", SamplingParams(max_tokens=2), spec=None).stats.num_draft is None


def test_the_governor_can_be_tuned(llm):
    """Without credit nothing is risked, so nothing is drafted."""
    cautious = GovernorOptions(first_credit=0.0, allowance=0.0)
    options = SpecOptions(type="ngram", governor=cautious)
    got = llm.generate("a b c d " * 6, SamplingParams(max_tokens=40), spec=options).stats
    assert got.num_parked == got.steps and not got.num_drafted
    with pytest.raises(OptionError, match="governor"):
        SpecOptions(governor="yes")
