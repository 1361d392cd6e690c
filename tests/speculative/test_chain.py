"""The chain: who is asked, who is used, who hears."""

import pytest
from toys import Scripted

from specrt.speculative.algorithms.ngram import NgramSpeculator
from specrt.speculative.chain import ChainSpeculator
from specrt.state.messages import FINAL_HIDDEN, DraftContext, Kept, residual_entering
from specrt.state.sequence import Cursor, Sequence


def sequences(count: int) -> list[Sequence]:
    made = [Sequence(slot, 50) for slot in range(count)]
    for sequence in made:
        sequence.history[:3] = [1, 2, 3]
        sequence.cursor = Cursor(num_tokens=3, cache_len=2)
    return made


def test_the_first_that_proposes_is_used_and_the_rest_is_asked_only_for_what_is_open():
    first = Scripted("first", {1: [10, 11]})
    second = Scripted("second", {0: [20], 1: [21], 3: [23]})
    third = Scripted("third", {2: [32, 33]})
    chain = ChainSpeculator([first, second, third])
    drafts = chain.propose([DraftContext(s, 4) for s in sequences(4)])
    assert [d.tokens for d in drafts] == [[20], [10, 11], [32, 33], [23]]
    assert [d.source for d in drafts] == ["second", "first", "third", "second"]
    assert [
        [slot for slot, _, _ in calls[0]] for calls in (first.asked, second.asked, third.asked)
    ] == [
        [0, 1, 2, 3],
        [0, 2, 3],
        [2],
    ]


def test_nobody_is_asked_when_nothing_is_open():
    second = Scripted("second", {})
    chain = ChainSpeculator([Scripted("first", {0: [1]}), second])
    chain.propose([DraftContext(s, 4) for s in sequences(1)])
    assert second.asked == []
    assert chain.propose([]) == []


@pytest.mark.parametrize("pmin", [None, 0.0, 0.5])
def test_members_get_the_users_gate_and_their_own_cap(pmin):
    short, long = Scripted("short", {}, max_draft=3), Scripted("long", {}, max_draft=9)
    ChainSpeculator([short, long]).propose([DraftContext(sequences(1)[0], 7, pmin)])
    assert short.asked == [[(0, 3, pmin)]]
    assert long.asked == [[(0, 7, pmin)]]


def test_all_hear_what_landed():
    members = [Scripted("first", {}), Scripted("second", {})]
    chain = ChainSpeculator(members)
    (sequence,) = sequences(1)
    rows = [Kept(sequence, 0, [1, 2], 3, {})]
    chain.commit(rows)
    chain.reset(sequence)
    for member in members:
        assert member.heard == rows
        assert member.resets == [sequence]


def test_declares_what_its_members_need_together():
    head = Scripted("head", {}, max_draft=7)
    block = Scripted("block", {}, max_draft=15, taps=frozenset({residual_entering(3)}))
    chain = ChainSpeculator([head, block])
    assert chain.name == "head,block"
    assert chain.max_draft == 15
    assert chain.taps == {FINAL_HIDDEN, residual_entering(3)}
    assert not chain.wants_prompt and not chain.can_arm_after_prefix_reuse
    chain = ChainSpeculator([NgramSpeculator(), head])
    assert chain.max_draft == 64
    assert chain.wants_prompt and chain.can_arm_after_prefix_reuse


def test_ngram_before_a_head():
    (sequence,) = sequences(1)
    chain = ChainSpeculator([NgramSpeculator(), Scripted("head", {0: [7, 8]})])
    assert chain.propose([DraftContext(sequence, 2)])[0].source == "head"
    sequence.history[3:5] = [1, 2]
    sequence.cursor = Cursor(num_tokens=5, cache_len=4)
    (draft,) = chain.propose([DraftContext(sequence, 2)])
    assert (draft.tokens, draft.source) == ([3, 1], "ngram")
