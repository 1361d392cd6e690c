"""Chains over a real target: faults that cost one member, and heads that sat turns out."""

import math
from collections import Counter
from functools import cache

import pytest
from toys import Head

from specrt import SamplingParams, SpecOptions
from specrt.completion import completion
from specrt.lossless import fixed_request
from specrt.speculative.registry import SpeculatorFactory, default_registry
from specrt.state.messages import Draft
from tests.fakes import ScriptedSpeculator
from tests.models_on_disk import golden_arrays, load_golden
from tests.running import run, same

PARAMS = SamplingParams(max_tokens=24, ignore_eos=True, temperature=1.0, seed=5, logprobs=1)
PROMPT = golden_arrays("llama")["tokens"].tolist()[:30]


@cache
def llm():
    return load_golden("llama")


@cache
def plain(ids: tuple[int, ...]):
    """Plain decoding, to be asked for before a step: a step holds the runtime."""
    return run(llm(), list(ids), PARAMS)


def truth(context) -> list[int]:
    """What plain decoding says next, whatever the turn."""
    sequence = context.sequence
    whole = plain(tuple(sequence.tokens[: sequence.prompt_len]))
    return whole.token_ids[sequence.num_generated :]


def complete(requests) -> None:
    """Run them together; each must be as plain."""
    expected = plain(tuple(PROMPT))
    runtime = llm().generator.runtime
    for request in requests:
        runtime.prefill(request)
    running = requests
    while running:
        runtime.step(running)
        running = [r for r in running if r.sequence.cursor.finish_reason is None]
    for request in requests:
        same(completion(request), expected)
        llm().target.close_sequence(request.sequence)


def failing(method: str, fails) -> ScriptedSpeculator:
    """Proposes nothing; ``method`` raises when ``fails`` says so of one of its items."""
    bad = ScriptedSpeculator(lambda c: [])
    bad.name = "bad"
    works = getattr(bad, method)

    def call(items):
        if any(fails(item) for item in items):
            raise RuntimeError("injected")
        return works(items)

    setattr(bad, method, call)
    return bad


@pytest.mark.parametrize("method", ["propose", "commit"])
@pytest.mark.parametrize("place", [0, 1])
def test_one_failing_member_leaves_the_other_drafting(method, place):
    plain(tuple(PROMPT))
    bad = failing(method, lambda item: item.sequence.num_generated > 3)
    # Behind the other one, it is asked only where that has nothing.
    good = ScriptedSpeculator(lambda c: truth(c) if place == 0 or len(truth(c)) % 5 else [])
    members = (bad, good) if place == 0 else (good, bad)
    request = fixed_request(llm(), PROMPT, PARAMS, members, 3)
    complete([request])
    assert request.speculators == (good,)
    assert request.stats.speculator == "scripted"
    assert request.stats.declined == ["bad: failed: RuntimeError('injected')"]
    assert request.stats.num_accepted > 10


@pytest.mark.parametrize("method", ["propose", "commit"])
def test_in_a_batch_a_member_is_parked_where_it_fails(method):
    plain(tuple(PROMPT))
    first, second = (fixed_request(llm(), PROMPT, PARAMS, (), 4) for _ in range(2))
    bad = failing(method, lambda item: item.sequence is second.sequence)
    bad.script, bad.wants_prompt = truth, False
    first.speculators = second.speculators = (bad,)
    complete([first, second])
    assert first.speculators == (bad,)
    assert first.stats.num_accepted > 15 and not first.stats.declined
    assert second.speculators == ()
    assert second.stats.draft_steps == (method == "commit")
    assert second.stats.declined == ["bad: failed: RuntimeError('injected')"]


@pytest.mark.parametrize("confidence", [math.nan, -math.inf], ids=repr)
def test_draft_logits_without_a_number_are_no_draft(confidence):
    broken = ScriptedSpeculator(truth)
    broken.propose = lambda contexts: [
        Draft([0] * c.num_draft, [confidence] * c.num_draft, "broken") for c in contexts
    ]
    expected = plain(tuple(PROMPT))
    got = run(llm(), PROMPT, PARAMS, broken, 4)
    same(got, expected)
    assert got.stats.num_drafted == 0
    assert got.stats.speculator == "scripted" and not got.stats.declined


class Turns:
    """A session over a model that knows these heads, and n-gram as ever."""

    def __init__(self, *heads: Head) -> None:
        registry = default_registry()
        for head in heads:
            registry.register(SpeculatorFactory(head.name, False, lambda *_, head=head: head))
        self.head, self.heads = heads[0], heads
        self.session = load_golden("llama", registry=registry).session()
        self.ids = PROMPT

    def turn(self, spec: str, keep: int | None = None):
        """Go on from the first ``keep`` ids so far; the answer must be as plain."""
        ids = [*self.ids[:keep], 7, 8, 9]
        expected = plain(tuple(ids))
        for head in self.heads:
            head.positions.clear()
        options = SpecOptions(type=spec, governor=False, num_draft=3)
        got = self.session.generate(ids, PARAMS, spec=options)
        same(got, expected)
        self.ids = ids + got.token_ids
        return got

    def heard_once_from(self, start: int, head: Head | None = None) -> bool:
        """True if it heard each position from there to the end once, and no other."""
        expected = range(start, self.session.cached_tokens)
        return Counter((head or self.head).positions) == Counter(expected)


@pytest.fixture(params=["head", "ngram,head"])
def spec(request):
    return request.param


def test_a_head_that_followed_goes_on_with_what_is_new(spec):
    turns = Turns(Head(truth))
    first = turns.turn(spec)
    assert first.stats.num_accepted > 5 and turns.heard_once_from(0)
    cached = turns.session.cached_tokens
    second = turns.turn(spec)
    assert second.stats.cached_tokens == cached
    assert second.stats.num_accepted > 5 and turns.heard_once_from(cached)


def test_after_a_turn_without_it_the_prompt_is_fed_once_from_where_its_knowledge_ends(spec):
    turns = Turns(Head(truth))
    turns.turn(spec)
    known = turns.session.cached_tokens
    without = turns.turn("none")
    assert without.stats.cached_tokens == known and not turns.head.positions
    cached = turns.session.cached_tokens
    back = turns.turn(spec)
    assert cached > known
    assert back.stats.cached_tokens == known
    assert back.stats.num_accepted > 5 and turns.heard_once_from(known)
    cached = turns.session.cached_tokens
    assert turns.turn(spec).stats.cached_tokens == cached


def test_a_head_that_knows_nothing_of_the_sequence_hears_all_of_it(spec):
    turns = Turns(Head(truth))
    turns.turn("ngram")
    got = turns.turn(spec)
    assert got.stats.cached_tokens == 0
    assert got.stats.num_accepted > 5 and turns.heard_once_from(0)


def test_turns_without_a_head_keep_the_whole_prefix():
    turns = Turns(Head(truth))
    turns.turn("head")
    turns.turn("none")
    cached = turns.session.cached_tokens
    assert turns.turn("ngram").stats.cached_tokens == cached


def test_a_parked_head_is_back_in_the_next_turn(spec):
    turns = Turns(Head(truth))
    turns.turn(spec)
    turns.head.fails = RuntimeError("injected")
    got = turns.turn(spec)
    assert got.stats.declined == ["head: failed: RuntimeError('injected')"]
    assert got.stats.speculator == (None if spec == "head" else "ngram")
    turns.head.fails = None
    known = turns.head.positions[-1] + 1
    assert known < turns.session.cached_tokens
    back = turns.turn(spec)
    assert back.stats.cached_tokens == known
    assert back.stats.num_accepted > 5 and turns.heard_once_from(known)


@pytest.mark.parametrize("keep", [45, 20, 1])
def test_a_diverging_turn_keeps_what_is_common_and_known(spec, keep):
    turns = Turns(Head(truth))
    turns.turn(spec)
    turns.turn("none")
    got = turns.turn(spec, keep)
    assert got.stats.cached_tokens == keep
    assert got.stats.num_accepted > 5 and turns.heard_once_from(keep)


class Ring(Head):
    """Loses all that it knows when it goes back by more than two positions."""

    def reset(self, sequence):
        back = self.heard(sequence) - sequence.cursor.num_tokens
        super().reset(sequence)
        if back > 2:
            sequence.drafter_states[self] = 0


class Stubborn(Head):
    """Cannot go back at all."""

    def reset(self, sequence):
        raise RuntimeError("cannot")


@pytest.mark.parametrize("kind", [Ring, Stubborn])
def test_what_a_head_loses_when_it_goes_back_is_fed_again(kind):
    turns = Turns(kind(truth))
    turns.turn("head")
    got = turns.turn("head", keep=20)
    assert got.stats.cached_tokens == 0
    assert got.stats.num_accepted > 5 and turns.heard_once_from(0)


def test_two_heads_are_fed_from_where_the_knowledge_of_either_ends():
    turns = Turns(Head(lambda c: [], "first"), Head(truth, "second"))
    turns.turn("first,second")
    known = turns.session.cached_tokens
    turns.turn("second")
    cached = turns.session.cached_tokens
    assert turns.turn("ngram,second").stats.cached_tokens == cached
    got = turns.turn("ngram,second,first")
    assert got.stats.cached_tokens == known
    assert got.stats.num_accepted > 5
    assert all(turns.heard_once_from(known, head) for head in turns.heads)


@pytest.mark.parametrize("answer", [-3, None, 10**9, "many"], ids=repr)
def test_what_a_speculator_says_it_heard_never_breaks_a_turn(answer):
    turns = Turns(Head(lambda c: []))
    turns.turn("head")
    cached = turns.session.cached_tokens
    turns.head.heard = lambda sequence: answer
    assert turns.turn("head").stats.cached_tokens == (cached if answer == 10**9 else 0)


@pytest.mark.parametrize(("wants_prompt", "can_arm"), [(True, True), (False, True), (False, False)])
def test_nothing_is_fed_again_for_those_who_need_or_want_nothing(wants_prompt, can_arm):
    turns = Turns(Head(lambda c: []))
    turns.head.wants_prompt, turns.head.can_arm_after_prefix_reuse = wants_prompt, can_arm
    turns.turn("none")
    cached = turns.session.cached_tokens
    assert turns.turn("head").stats.cached_tokens == cached
