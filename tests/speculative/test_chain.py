"""The chain: who is asked, what is used of it, who hears, and what a fault costs."""

import math

import numpy as np
import pytest
from toys import Rows, Scripted, request_of

from specrt.models.tap_rows import RING
from specrt.options import MAX_DRAFT
from specrt.speculative import chain
from specrt.speculative.algorithms.ngram import NgramSpeculator
from specrt.state.messages import Draft, Kept
from specrt.state.sequence import Cursor

TARGET = Rows()
VOCAB_SIZE = TARGET.vocab_size


def draft(*requests):
    return chain.draft(list(requests), TARGET)


def slots(member) -> list[list[int]]:
    return [[slot for slot, _, _ in call] for call in member.asked]


def test_the_first_that_proposes_is_used_and_the_rest_is_asked_only_for_what_is_open():
    first = Scripted("first", {1: [10, 11]})
    second = Scripted("second", {0: [20], 1: [21], 3: [23]})
    third = Scripted("third", {2: [32, 33]})
    drafts = draft(*(request_of(slot, first, second, third) for slot in range(4)))
    assert [d.tokens for d in drafts] == [[20], [10, 11], [32, 33], [23]]
    assert [d.source for d in drafts] == ["second", "first", "third", "second"]
    assert slots(first) == [[0, 1, 2, 3]]
    assert slots(second) == [[0, 2, 3]]
    assert slots(third) == [[2]]


def test_nobody_is_asked_when_nothing_is_open():
    second = Scripted("second", {0: [2]})
    assert draft(request_of(0, Scripted("first", {0: [1]}), second))[0].source == "first"
    assert draft(request_of(0), request_of(1, second, num_draft=0))[1].tokens == []
    assert second.asked == []
    assert draft() == []


def test_a_member_is_asked_once_whatever_else_the_chains_hold():
    ngram, head, block = (Scripted(name, {}) for name in ("ngram", "head", "block"))
    draft(
        request_of(0, head, block), request_of(1, ngram, head), request_of(2, block), request_of(3)
    )
    assert (slots(ngram), slots(head), slots(block)) == ([[1]], [[0, 1]], [[0, 2]])


def test_each_request_keeps_its_own_order_even_against_another():
    one, two = Scripted("one", {0: [1], 1: [1]}), Scripted("two", {0: [2], 1: [2]})
    drafts = draft(request_of(0, one, two), request_of(1, two, one))
    assert [d.source for d in drafts] == ["one", "two"]


@pytest.mark.parametrize("pmin", [None, 0.0, 0.5])
def test_members_get_the_users_gate_and_their_own_cap(pmin):
    short, long = Scripted("short", {}, max_draft=3), Scripted("long", {}, max_draft=9)
    draft(request_of(0, short, long, num_draft=7, pmin=pmin))
    assert short.asked == [[(0, 3, pmin)]]
    assert long.asked == [[(0, 7, pmin)]]


def test_the_policy_is_asked_for_each_member_what_there_is_room_for():
    asked, told = [], []

    class Policy:
        def num_draft(self, member, max_draft, others, gate):
            asked.append((member, max_draft, others))
            return 0 if member == "parked" else max_draft

        def proposed(self, member, num_proposed, seconds, confidences):
            told.append((member, num_proposed))

    for max_draft, num_tokens in ((64, 3), (5, 3), (64, 46), (64, 49)):
        parked, long = Scripted("parked", {0: [1]}, max_draft=3), Scripted("long", {}, max_draft=9)
        request = request_of(0, parked, long)
        request.policy, request.max_draft = Policy(), max_draft
        request.sequence.cursor = Cursor(num_tokens=num_tokens, cache_len=num_tokens - 1)
        draft(request)
        assert parked.asked == []
    assert [a for a in asked if a[0] == "parked"] == [("parked", n, 0) for n in (3, 3, 3)]
    assert [a for a in asked if a[0] == "long"] == [("long", n, 0) for n in (9, 5, 3)]
    assert told == [("long", 0)] * 3


def test_ngram_before_a_head():
    request = request_of(0, NgramSpeculator(), Scripted("head", {0: [7, 8]}), num_draft=2)
    assert draft(request)[0].source == "head"
    request.sequence.history[3:5] = [1, 2]
    request.sequence.cursor = Cursor(num_tokens=5, cache_len=4)
    (got,) = draft(request)
    assert (got.tokens, got.source) == ([3, 1], "ngram")


def untold(*requests):
    """Two rows were kept since their prompts."""
    for request in requests:
        request.sequence.prompt_len = 1
    return [Kept(request.sequence, 0, [1, 2], 3, {}) for request in requests]


def test_who_is_asked_has_heard_of_all_kept_rows_once():
    ngram, head = Scripted("ngram", {0: [5]}), Scripted("head", {})
    requests = [request_of(0, ngram, head), request_of(1, head), request_of(2)]
    rows = untold(*requests)
    draft(*requests)
    draft(*requests)
    assert (ngram.told, head.told) == ([[rows[0]]], [[rows[1]]])
    requests[0].sequence.history[3] = 4
    requests[0].sequence.cursor = Cursor(num_tokens=4, cache_len=3)
    draft(requests[0])
    assert ngram.told[1:] == [[Kept(requests[0].sequence, 2, [3], 4, {})]]


def test_targets_keep_taps_for_as_long_as_nobody_may_hear_of_them():
    """Rows that nobody has heard of, a window behind them, and one that was rejected."""
    assert chain.BACKLOG + 2 * (MAX_DRAFT + 1) <= RING


def test_who_is_not_asked_hears_of_rows_before_they_are_too_many():
    head = Scripted("head", {})
    request, other = request_of(0, head), request_of(1)
    (rows, _) = untold(request, other)
    chain.commit([request, other], TARGET, 3)
    assert head.told == []
    for _ in range(2):
        chain.commit([request, other], TARGET, 2)
        assert head.told == [[rows]]


def test_the_prompt_is_told_to_those_who_want_it():
    ngram, head = Scripted("ngram", {}, wants_prompt=True), Scripted("head", {})
    request = request_of(0, ngram, head)
    rows = Kept(request.sequence, 0, [1, 2], 3, {})
    chain.commit_prompt(request, rows)
    assert (ngram.told, head.told) == ([[rows]], [])


GATES = [
    (None, [0.9, 0.8, 0.7], 3),
    (None, [0.9, 0.35, 0.34], 2),
    (0.8, [0.9, 0.8, 0.7], 2),
    (0.95, [0.9, 0.99, 0.99], 0),
    (0.5, [0.9, 0.4, 0.9], 1),
    (0.0, [0.1, 0.0, 0.0], 3),
    (0.0, [0.1, math.nan, 0.9], 1),
    (0.0, [math.nan] * 3, 0),
    (0.0, [-math.inf] * 3, 0),
    (0.9, [], 3),
    (0.5, np.array([0.9, 0.6, 0.4], np.float32), 2),
    (0.5, [0.9, 0.6, 0.7, 0.8], 3),
]


@pytest.mark.parametrize(("pmin", "confidences", "kept"), GATES, ids=repr)
def test_a_draft_is_cut_before_the_first_unlikely_id(pmin, confidences, kept):
    (got,) = draft(request_of(0, Scripted("head", {0: [7, 8, 9]}, confidences), pmin=pmin))
    assert got.tokens == [7, 8, 9][:kept]
    assert list(got.confidences) == list(confidences)[:kept] or kept == 3


@pytest.mark.parametrize("confidences", [[0.9, 0.9, 0.1], [0.9, 0.9]], ids=["whole", "early"])
def test_stopping_early_makes_no_difference(confidences):
    tokens = [7, 8, 9][: len(confidences)]
    (got,) = draft(request_of(0, Scripted("head", {0: tokens}, confidences)))
    assert got == Draft([7, 8], [0.9, 0.9], "head")


def test_logits_of_nan_are_no_draft_and_the_next_is_asked():
    broken = Scripted("broken", {0: [0, 0, 0]}, [math.nan] * 3)
    request = request_of(0, broken, Scripted("other", {0: [5]}), pmin=0.0)
    assert draft(request)[0].source == "other"
    assert len(request.speculators) == 2
    assert not request.stats.declined


MALFORMED = {
    "no list": None,
    "too few": [],
    "no draft": [None],
    "no id": [Draft([None], [], "bad")],
    "half an id": [Draft([3.5], [], "bad")],
    "too many": [Draft([1], [], "bad")] * 3,
    "few confidences": [Draft([1, 2], [0.9], "bad")],
    "no confidence": [Draft([1], ["likely"], "bad")],
}


@pytest.mark.parametrize("answer", MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_draft_parks_its_author_and_nobody_else(answer):
    bad, good = Scripted("bad", {}), Scripted("good", {0: [5], 1: [6]})
    bad.propose = lambda contexts: answer
    requests = [request_of(slot, bad, good) for slot in range(2)]
    assert [d.tokens for d in draft(*requests)] == [[5], [6]]
    for request in requests:
        assert request.speculators == (good,)
        assert request.stats.speculator == "good"
        (reason,) = request.stats.declined
        assert reason.startswith("bad: failed: ")


def fail_for(slot: int, item, error: BaseException) -> None:
    if item.sequence.slot == slot:
        raise error


class Choosy(Scripted):
    """Fails for slot 1, after it has served slot 0."""

    error: BaseException = RuntimeError("not mine")

    def propose(self, contexts):
        drafts = super().propose(contexts)
        for context in contexts:
            fail_for(1, context, self.error)
        return drafts

    def commit(self, kept):
        for rows in kept:
            super().commit([rows])
            fail_for(1, rows, self.error)


def test_a_member_that_cannot_propose_for_one_request_is_parked_there_alone():
    choosy, other = Choosy("choosy", {0: [5], 2: [7]}), Scripted("other", {0: [8], 1: [9]})
    requests = [request_of(slot, choosy, other) for slot in range(3)]
    assert [d.tokens for d in draft(*requests)] == [[5], [9], [7]]
    assert slots(choosy) == [[0, 1, 2], [0], [1], [2]]
    assert [r.speculators for r in requests] == [(choosy, other), (other,), (choosy, other)]
    assert [r.stats.declined for r in requests] == [
        [],
        ["choosy: failed: RuntimeError('not mine')"],
        [],
    ]
    assert requests[1].stats.speculator == "other"


def test_a_member_that_cannot_hear_of_one_request_is_parked_there_alone():
    choosy, other = Choosy("choosy", {}), Scripted("other", {})
    requests = [request_of(0, choosy, other), request_of(1, choosy), request_of(2, choosy)]
    rows = untold(*requests)
    chain.commit(requests, TARGET, 1)
    assert [r.speculators for r in requests] == [(choosy, other), (), (choosy,)]
    assert requests[1].stats.speculator is None
    assert other.told == [[rows[0]]]
    assert choosy.told == [[row] for row in rows]


@pytest.mark.parametrize("act", ["propose", "commit"])
def test_an_interrupt_parks_nobody(act):
    choosy = Choosy("choosy", {})
    choosy.error = KeyboardInterrupt()
    requests = [request_of(slot, choosy) for slot in range(2)]
    with pytest.raises(KeyboardInterrupt):
        if act == "propose":
            draft(*requests)
        else:
            untold(*requests)
            chain.commit(requests, TARGET, 1)
    assert all(request.speculators == (choosy,) for request in requests)
