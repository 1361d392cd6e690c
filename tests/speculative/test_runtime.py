"""Faults at every hop, boundaries inside accepted runs, and cases that users of engines report."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from specrt import SamplingParams
from specrt.completion import completion
from specrt.errors import ContextError, MismatchError
from specrt.llm import LLM
from specrt.lossless import MixedDrafts, fixed_request
from specrt.speculative import runtime as runtime_module
from specrt.speculative.accept import Boundary
from specrt.speculative.algorithms.ngram import NgramSpeculator
from specrt.state.messages import FINAL_HIDDEN, Draft, residual_entering
from specrt.stats import Stats
from tests.fakes import ScriptedSpeculator
from tests.models_on_disk import golden_arrays, load_golden
from tests.running import run, same

PARAMS = SamplingParams(max_tokens=40, ignore_eos=True)
SAMPLED = SamplingParams(
    max_tokens=40, temperature=1.0, seed=7, repetition_penalty=1.2, logprobs=2, ignore_eos=True
)
MODELS = ("llama", "qwen35")


@cache
def llm(name: str = "llama") -> LLM:
    return load_golden(name, kv_type="f16")


def prompt(name: str = "llama", count: int = 30) -> list[int]:
    return golden_arrays(name)["tokens"].tolist()[:count]


@cache
def plain(params: SamplingParams = PARAMS, name: str = "llama"):
    return run(llm(name), prompt(name), params)


def truth(params: SamplingParams = PARAMS, name: str = "llama") -> list[int]:
    return prompt(name) + plain(params, name).token_ids


def drafts_of(params: SamplingParams, name: str, seed: int = 5) -> MixedDrafts:
    return MixedDrafts(truth(params, name), llm(name).target.vocab_size, seed)


def true_drafts(params: SamplingParams = PARAMS, more: tuple[int, ...] = ()) -> ScriptedSpeculator:
    """Proposes the true continuation, and ``more`` after it."""
    whole = [*truth(params), *more]
    return ScriptedSpeculator(lambda c: whole[c.sequence.cursor.num_tokens :][: c.num_draft])


def faulty(function, error: BaseException, after: bool):
    """The function, which raises before or after it has run."""

    def call(*args, **kwargs):
        if after:
            function(*args, **kwargs)
        raise error

    return call


HOPS = {
    "how many": lambda model, request: (request.policy, "num_draft"),
    "draft": lambda model, request: (request.speculators[0], "propose"),
    "prepare": lambda model, request: (model.target, "prepare"),
    "verify": lambda model, request: (model.target, "verify"),
    "accept": lambda model, request: (runtime_module, "accept"),
    "text": lambda model, request: (Boundary, "take"),
    "rollback": lambda model, request: (model.target, "rollback"),
    "commit": lambda model, request: (request.speculators[0], "commit"),
    "observe": lambda model, request: (request.policy, "observe"),
    "account": lambda model, request: (Stats, "count_step"),
}


@pytest.mark.parametrize("params", [PARAMS, SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("injected")], ids=repr)
@pytest.mark.parametrize("hop", HOPS)
@pytest.mark.parametrize("name", MODELS)
def test_a_fault_at_any_hop_leaves_the_sequence_as_it_was(
    name, hop, error, after, params, monkeypatch
):
    model, drafts = llm(name), drafts_of(params, name)
    request = fixed_request(model, prompt(name), params, (drafts,), 5)
    sequence, runtime = request.sequence, model.generator.runtime
    runtime.prefill(request)
    for _ in range(3):
        runtime.step([request])
    before = sequence.cursor
    ids, text = sequence.tokens, bytes(sequence.text[: before.text_len])
    owner, method = HOPS[hop](model, request)
    monkeypatch.setattr(owner, method, faulty(getattr(owner, method), error, after))
    if hop in ("draft", "commit") and isinstance(error, RuntimeError):
        runtime.step([request])
        assert request.speculators == ()
        assert "injected" in request.stats.declined[0]
    else:
        with pytest.raises(type(error)):
            runtime.step([request])
        assert sequence.cursor == before
        assert sequence.tokens == ids
        assert bytes(sequence.text[: before.text_len]) == text
    monkeypatch.undo()
    while sequence.cursor.finish_reason is None:
        runtime.step([request])
    same(completion(request), plain(params, name))
    model.target.close_sequence(sequence)


@pytest.mark.parametrize("calls", [1, 2])
@pytest.mark.parametrize("hop", ["verify", "accept", "rollback", "account"])
@pytest.mark.parametrize("name", MODELS)
def test_a_fault_between_two_sequences_leaves_both_right(name, hop, calls, monkeypatch):
    """The hop fails at its first or second sequence; what the first had moved is moved right."""
    model, prompts = llm(name), [prompt(name), prompt(name)[:9]]
    expected = [run(model, ids, PARAMS) for ids in prompts]
    wholes = [one.prompt_token_ids + one.token_ids for one in expected]
    drafts = [MixedDrafts(whole, model.target.vocab_size, seed=5) for whole in wholes]
    requests = [
        fixed_request(model, ids, PARAMS, (own,), 5)
        for ids, own in zip(prompts, drafts, strict=True)
    ]
    runtime = model.generator.runtime
    for request in requests:
        runtime.prefill(request)
    runtime.step(requests)
    owner, method = HOPS[hop](model, requests[0])
    function, left = getattr(owner, method), [calls]

    def failing(*args, **kwargs):
        left[0] -= 1
        if left[0] <= 0:
            raise KeyboardInterrupt
        return function(*args, **kwargs)

    monkeypatch.setattr(owner, method, failing)
    with pytest.raises(KeyboardInterrupt):
        runtime.step(requests)
        runtime.step(requests)  # a verify is called once a step
    monkeypatch.undo()
    while going := [r for r in requests if r.sequence.cursor.finish_reason is None]:
        runtime.step(going)
    for request, plain_one in zip(requests, expected, strict=True):
        same(completion(request), plain_one)
        model.target.close_sequence(request.sequence)


def test_an_end_token_inside_an_accepted_run_ends_there():
    expected = plain()
    for place in range(1, 30, 3):
        end = expected.token_ids[place]
        first = expected.token_ids.index(end)
        params = replace(PARAMS, stop_token_ids=(end,))
        got = run(llm(), prompt(), params, true_drafts(more=(1, 2, 3)), 8)
        same(got, run(llm(), prompt(), params))
        assert got.token_ids == expected.token_ids[: first + 1]
        assert got.finish_reason == "stop"


def test_the_cache_counts_kept_tokens_only_when_a_run_ends():
    end = plain().token_ids[11]
    params = replace(PARAMS, stop_token_ids=(end,))
    request = fixed_request(llm(), prompt(), params, (true_drafts(),), 16)
    for _ in llm().generator.run(request):
        pass
    cursor = request.sequence.cursor
    assert cursor.cache_len == cursor.num_tokens - 1
    assert cursor.num_tokens == len(prompt()) + plain().token_ids.index(end) + 1
    llm().target.close_sequence(request.sequence)


def test_a_drafted_end_token_that_the_target_does_not_want_is_ignored():
    end = next(i for i in range(512) if i not in plain().token_ids)
    params = replace(PARAMS, stop_token_ids=(end,))
    got = run(llm(), prompt(), params, ScriptedSpeculator(lambda c: [end] * c.num_draft), 4)
    assert got.token_ids == plain().token_ids


@pytest.mark.parametrize("missing", range(1, 15))
def test_the_end_of_the_context(missing):
    small = llm_with_context(64)
    ids = (prompt() * 3)[: 64 - missing]
    params = SamplingParams(ignore_eos=True)
    expected = run(small, ids, params)
    whole = ids + expected.token_ids
    drafts = ScriptedSpeculator(
        lambda c: (whole[c.sequence.cursor.num_tokens :] + [1] * 16)[: c.num_draft]
    )
    got = run(small, ids, params, drafts, 16)
    same(got, expected)
    assert len(got.token_ids) == missing
    assert got.finish_reason == "length"


@cache
def llm_with_context(context: int) -> LLM:
    return load_golden("llama", context=context)


def test_a_prompt_that_fills_the_context_is_an_error():
    with pytest.raises(ContextError, match="context is 64"):
        llm_with_context(64).generate([1] * 64)
    assert llm_with_context(64).generate([1] * 63).finish_reason in ("stop", "length")


def test_a_sliding_window_keeps_its_keys_when_drafts_are_rejected_at_any_offset():
    """gemma3's window is 12: reject 16 tokens at every offset modulo the window and the page."""
    ids = prompt("gemma3", 56)
    params = replace(PARAMS, max_tokens=80)
    expected = run(llm("gemma3"), ids, params)
    wrong = ScriptedSpeculator(lambda c: [(c.sequence.last_token + 1) % 512] * c.num_draft)
    same(run(llm("gemma3"), ids, params, wrong, 16), expected)


@pytest.mark.parametrize("name", MODELS)
def test_rejection_at_a_page_boundary_then_another_sequence(name):
    model, ids = llm(name), prompt(name)
    params = replace(PARAMS, max_tokens=50)
    expected = run(model, ids, params)
    whole = ids + expected.token_ids
    drafts = MixedDrafts(whole, 512, seed=3)
    first = fixed_request(model, ids, params, (drafts,), 8)
    second = fixed_request(model, ids, params, (drafts,), 3)
    runtime = model.generator.runtime
    for request in (first, second):
        runtime.prefill(request)
    running = [first, second]
    while running:
        runtime.step(running)
        running = [r for r in running if r.sequence.cursor.finish_reason is None]
    for request in (first, second):
        same(completion(request), expected)
        model.target.close_sequence(request.sequence)


@pytest.mark.parametrize("name", MODELS)
def test_a_drafter_that_proposes_nothing_at_random_steps(name):
    random = np.random.default_rng(1)
    whole = truth(SAMPLED, name)
    drafts = ScriptedSpeculator(
        lambda c: whole[c.sequence.cursor.num_tokens :][: c.num_draft * random.integers(0, 2)]
    )
    same(run(llm(name), prompt(name), SAMPLED, drafts, 6), plain(SAMPLED, name))


@pytest.mark.parametrize("bad", [[-1], [512], [2**31], [3, 10**6]])
def test_impossible_draft_ids_are_no_draft(bad):
    got = run(llm(), prompt(), PARAMS, ScriptedSpeculator(lambda c: bad), 4)
    same(got, plain())


def test_a_draft_longer_than_asked_is_cut():
    whole = truth()
    drafts = ScriptedSpeculator(lambda c: whole[c.sequence.cursor.num_tokens :])
    got = run(llm(), prompt(), PARAMS, drafts, 3)
    same(got, plain())
    assert max(got.stats.num_draft_counts) == 3


def test_the_speculator_hears_every_position_once():
    drafts = true_drafts()
    run(llm(), prompt(), PARAMS, drafts, 5)
    fed = [token for kept in drafts.kept for token in kept.tokens]
    positions = [kept.start_pos + i for kept in drafts.kept for i in range(len(kept.tokens))]
    assert positions == list(range(len(fed)))
    assert fed == truth()[: len(fed)]
    for kept, following in zip(drafts.kept, drafts.kept[1:], strict=False):
        assert kept.next_token == following.tokens[0]


@pytest.mark.parametrize("tap", [residual_entering(2), FINAL_HIDDEN])
@pytest.mark.parametrize("name", MODELS)
def test_the_taps_of_kept_rows_are_those_of_plain_rows(name, tap):
    def rows(drafts, num_draft):
        heard = []
        drafts.taps = frozenset({tap})
        drafts.commit = lambda kept: heard.extend((k.start_pos, k.taps[tap].copy()) for k in kept)
        run(llm(name), prompt(name), PARAMS, drafts, num_draft)
        return np.concatenate([rows for _, rows in sorted(heard, key=lambda item: item[0])])

    expected = rows(ScriptedSpeculator(lambda c: []), 1)
    got = rows(drafts_of(PARAMS, name, seed=2), 6)
    np.testing.assert_array_equal(got, expected[: len(got)])


@pytest.mark.parametrize("name", MODELS)
def test_requests_a_b_a(name):
    model = llm(name)
    first = model.generate(prompt(name), PARAMS, spec="ngram")
    model.generate(prompt(name, 12), PARAMS, spec="ngram")
    third = model.generate(prompt(name), PARAMS, spec="ngram")
    same(third, first)


def test_a_batch_equals_its_members_alone():
    from specrt import SpecOptions

    spec = SpecOptions(type="ngram", governor=False)
    prompts = [prompt(count=n) for n in (30, 5, 17, 22, 9, 30)]
    params = [replace(SAMPLED, seed=n, max_tokens=20 + n) for n in range(6)]
    alone = [llm().generate(ids, p, spec=spec) for ids, p in zip(prompts, params, strict=True)]
    together = llm().generate(prompts, params, spec=spec)
    for got, expected in zip(together, alone, strict=True):
        same(got, expected)
        assert got.stats.num_drafted == expected.stats.num_drafted
        assert got.stats.num_accepted == expected.stats.num_accepted


@pytest.mark.parametrize("name", MODELS)
def test_ngram_over_turns_and_a_rewind_in_the_same_slot(name):
    with llm(name).session() as session:
        ids = prompt(name) * 3
        for turn in (ids, [*ids, 5, 6, 7], ids[:40], ids[:40] + ids):
            got = session.generate(turn, SAMPLED, spec="ngram")
            expected = llm(name).generate(turn, SAMPLED, spec="none")
            assert got.token_ids == expected.token_ids
            assert got.logprobs == expected.logprobs


def test_min_tokens_holds_the_end_back():
    end = plain().token_ids[0]
    params = replace(PARAMS, stop_token_ids=(end,), min_tokens=10)
    expected = run(llm(), prompt(), params)
    assert len(expected.token_ids) >= 10
    assert end not in expected.token_ids[:10]
    same(run(llm(), prompt(), params, NgramSpeculator(), 8), expected)
    drafts = MixedDrafts(prompt() + expected.token_ids, 512, seed=1)
    same(run(llm(), prompt(), params, drafts, 8), expected)


@pytest.mark.parametrize(
    "drafts",
    [
        [],
        [None],
        [Draft([None], [], "bad")],
        [Draft([3.5], [], "bad")],
        [Draft([1], [], "bad"), Draft([1], [], "bad")],
    ],
    ids=repr,
)
def test_a_malformed_draft_parks_the_drafter(drafts):
    bad = ScriptedSpeculator(lambda c: [])
    bad.propose = lambda contexts: drafts
    got = run(llm(), prompt(), PARAMS, bad, 4)
    same(got, plain())
    assert got.stats.speculator is None
    assert "scripted: failed" in got.stats.declined[0]


def test_a_drafter_that_cannot_follow_back_starts_anew():
    class Stubborn(ScriptedSpeculator):
        def commit(self, kept):
            for rows in kept:
                rows.sequence.drafter_states[self] = True

        def reset(self, sequence):
            raise RuntimeError("cannot")

    generator = llm().generator
    request = fixed_request(llm(), prompt(), PARAMS, (Stubborn(lambda c: [1]),), 3)
    sequence = request.sequence
    for _ in generator.run(request):
        pass
    assert request.speculators[0] in sequence.drafter_states
    again = generator.request(sequence, prompt(), PARAMS, None)
    assert not sequence.drafter_states
    for _ in generator.run(again):
        pass
    same(completion(again), plain())
    llm().target.close_sequence(sequence)


def test_ids_alone_serve_plain_greedy_only():
    def needs_logits(**options):
        request = fixed_request(llm(), prompt(), SamplingParams(**options))
        llm().target.close_sequence(request.sequence)
        return request.needs_logits

    assert not needs_logits()
    for options in (
        {"temperature": 1.0},
        {"logprobs": 0},
        {"min_tokens": 1},
        {"presence_penalty": 1.0},
        {"logit_bias": {1: 1.0}},
    ):
        assert needs_logits(**options)


def test_prefill_taps_only_for_who_hears_of_the_prompt(monkeypatch):
    asked = []
    prefill = llm().target.prefill
    monkeypatch.setattr(
        llm().target, "prefill", lambda s, ids, taps=(): asked.append(taps) or prefill(s, ids, taps)
    )
    tap = residual_entering(1)
    for wants_prompt in (True, False):
        drafts = ScriptedSpeculator(lambda c: [], frozenset({tap}))
        drafts.wants_prompt = wants_prompt
        run(llm(), prompt(), PARAMS, drafts, 2)
    assert [set(taps) for taps in asked] == [{tap}, set()]


@pytest.mark.parametrize("wants_prompt", [True, False])
def test_a_tap_that_the_target_has_not_is_an_error_and_no_row(wants_prompt):
    drafts = ScriptedSpeculator(lambda c: [], frozenset({residual_entering(99)}))
    drafts.wants_prompt = wants_prompt
    message = r"residual_entering\(99\), expected .*final_hidden, residual_entering\(0 \.\. 3\)"
    with pytest.raises(MismatchError, match=message):
        run(llm(), prompt(), PARAMS, drafts, 2)
    same(llm().generate(prompt(), PARAMS), plain())
