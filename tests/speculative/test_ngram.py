"""The n-gram index against a plain search, and the speculator over sequences."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specrt._ext.ngram_index import NgramIndex
from specrt.speculative.algorithms.ngram import NgramSpeculator
from specrt.state.messages import DraftContext, Kept
from specrt.state.sequence import Cursor, Sequence


def search(ids: list[int], num_draft: int, least: int, most: int) -> tuple[list[int], int]:
    """The proposal by its definition, and the order of the match."""
    for order in range(min(most, len(ids) - 1), least - 1, -1):
        suffix = ids[-order:]
        for start in range(len(ids) - order - 1, -1, -1):
            if ids[start : start + order] == suffix:
                grown = list(ids)
                for i in range(num_draft):
                    grown.append(grown[start + order + i])
                return grown[len(ids) :], order
    return [], 0


def index_of(ids: list[int], context: int = 200, least: int = 2, most: int = 8) -> NgramIndex:
    history = np.zeros(context + 1, np.int32)
    index = NgramIndex(history, least, most)
    index.commit(0, ids)
    return index


def check(index: NgramIndex, ids: list[int], num_draft: int = 8, least: int = 2) -> None:
    expected, order = search(ids, num_draft, max(least, index.min_order), index.max_order)
    assert len(index) == len(ids)
    assert index.propose(num_draft, least) == expected
    assert index.match_order == order


tokens = st.lists(st.integers(0, 2), max_size=40)


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from([(2, 8), (1, 1), (3, 5), (1, 16)]),
    st.lists(
        st.tuples(st.integers(0, 150), tokens, st.integers(1, 64), st.integers(1, 9)), max_size=9
    ),
)
def test_equals_a_plain_search_over_commits_and_rewinds(orders, edits):
    index, ids = index_of([], 600, *orders), []
    for back, added, num_draft, least in edits:
        ids = ids[: max(0, len(ids) - back)] if back % 3 == 0 else ids
        index.rewind(len(ids))
        index.commit(len(ids), added)
        ids = ids + added
        check(index, ids, num_draft, least)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 400), tokens), min_size=2, max_size=10))
def test_a_commit_skips_what_it_holds_and_replaces_what_differs(edits):
    index, ids = index_of([], 600), []
    for start, added in edits:
        start = min(start, len(ids))
        held = ids[start : start + len(added)]
        if held != added[: len(held)]:
            first = next(i for i, (a, b) in enumerate(zip(held, added, strict=False)) if a != b)
            ids = ids[: start + first]
        ids = ids[:start] + added + ids[start + len(added) :]
        index.commit(start, added)
        index.commit(start, added)
        check(index, ids)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 40), tokens), min_size=2, max_size=8))
def test_follows_the_history_whatever_changed_at_its_end(edits):
    history = np.full(601, 9, np.int32)
    index, ids = NgramIndex(history), []
    for back, added in edits:
        ids = ids[: max(0, len(ids) - back % 8)] + added
        history[: len(ids)] = ids
        index.follow(len(ids))
        check(index, ids)


@pytest.mark.parametrize("period", [1, 2, 3, 5, 7, 13])
def test_a_repetition_gives_a_full_draft(period):
    ids = [100 + i % period for i in range(2 * period + 8)]
    expected = [100 + i % period for i in range(len(ids), len(ids) + 64)]
    assert index_of(ids).propose(64, 2) == expected


def test_the_newest_hit_of_the_longest_order_wins():
    ids = [1, 2, 3, 50, 9, 2, 3, 60, 1, 2, 3]
    assert index_of(ids).propose(1, 2) == [50]
    assert index_of(ids, most=2).propose(1, 2) == [60]


def test_an_older_occurrence_returns_after_a_rewind():
    ids = [1, 2, 50, 8, 1, 2, 60, 7, 1, 2]
    index = index_of(ids)
    assert index.propose(1, 2) == [60]
    index.rewind(4)
    index.commit(4, [5, 1, 2])
    assert index.propose(1, 2) == [50]


def test_ids_at_the_ends_of_int32_and_a_full_context():
    ids = [0, 2**31 - 1, -1] * 7
    index = index_of(ids, context=20)
    check(index, ids)
    with pytest.raises(ValueError, match="at most 21"):
        index.commit(21, [1])
    with pytest.raises(ValueError, match=r"0 \.\. 21"):
        index.commit(22, [])
    with pytest.raises((TypeError, OverflowError)):
        index.commit(0, [2**40])
    check(index, ids)


@pytest.mark.parametrize("orders", [(0, 8), (3, 2), (2, 17)])
def test_refuses_orders_out_of_range(orders):
    with pytest.raises(ValueError, match="orders"):
        NgramIndex(np.zeros(9, np.int32), *orders)


def sequence_of(ids: list[int], slot: int = 0) -> Sequence:
    sequence = Sequence(slot, 300)
    sequence.history[: len(ids)] = ids
    sequence.cursor = Cursor(num_tokens=len(ids), cache_len=len(ids) - 1)
    return sequence


def draft(speculator, sequence, num_draft=4, pmin=None):
    (result,) = speculator.propose([DraftContext(sequence, num_draft, pmin)])
    return result.tokens


def test_sequences_share_nothing():
    speculator = NgramSpeculator()
    first, second = sequence_of([1, 2, 3, 4, 1, 2]), sequence_of([7, 8, 1, 2], slot=1)
    drafts = speculator.propose([DraftContext(first, 2), DraftContext(second, 2)])
    assert [d.tokens for d in drafts] == [[3, 4], []]
    assert [d.source for d in drafts] == ["ngram", ""]
    assert NgramSpeculator() not in first.drafter_states


def test_commit_with_the_next_token_equals_reading_the_history():
    speculator, sequence = NgramSpeculator(), sequence_of([5, 6, 7])
    speculator.commit([Kept(sequence, 0, [5, 6], 7, {})])
    speculator.commit([Kept(sequence, 2, [7, 5], 6, {}), Kept(sequence, 2, [7, 5], 6, {})])
    sequence.history[3:5] = [5, 6]
    sequence.cursor = Cursor(num_tokens=5, cache_len=4)
    assert draft(speculator, sequence) == [7, 5, 6, 7]


def test_rows_after_a_gap_are_read_from_the_history():
    speculator, sequence = NgramSpeculator(), sequence_of([5, 6, 7, 5, 6])
    speculator.commit([Kept(sequence, 3, [5], 6, {})])
    assert draft(speculator, sequence) == [7, 5, 6, 7]


def test_a_shorter_prompt_in_the_same_slot_and_a_rewind_leave_nothing_stale():
    speculator, sequence = NgramSpeculator(), sequence_of([1, 2, 3, 4, 5, 6, 1, 2])
    assert draft(speculator, sequence) == [3, 4, 5, 6]
    sequence.cursor = Cursor(num_tokens=3, cache_len=2)  # a rewind to [1, 2, 3] ...
    speculator.reset(sequence)
    assert draft(speculator, sequence) == []
    sequence.history[:4] = [8, 9, 8, 9]  # ... and a shorter prompt
    sequence.cursor = Cursor()
    speculator.reset(sequence)
    sequence.cursor = Cursor(num_tokens=4, cache_len=3)
    assert draft(speculator, sequence) == [8, 9, 8, 9]
    sequence.history[:3] = [1, 2, 1]
    sequence.cursor = Cursor(num_tokens=3, cache_len=2)
    assert draft(speculator, sequence) == []


def test_a_step_that_was_aborted_after_its_commit_is_forgotten():
    speculator, sequence = NgramSpeculator(), sequence_of([1, 2, 3, 4, 1, 2])
    speculator.commit([Kept(sequence, 5, [2, 3, 4], 1, {})])
    assert draft(speculator, sequence) == [3, 4, 1, 2]
    sequence.history[6:8] = [9, 1]  # the retry found other ids while the drafter was parked
    sequence.cursor = Cursor(num_tokens=8, cache_len=7)
    assert draft(speculator, sequence) == []


def test_the_gate_raises_the_least_order():
    speculator = NgramSpeculator()
    assert [speculator.least_order(p) for p in (0, 0.1, 0.5, 0.75, 1)] == [2, 3, 5, 6, 8]
    assert NgramSpeculator(3, 5).least_order(1) == 5
    sequence = sequence_of([1, 2, 3, 9, 1, 2, 3])
    assert draft(speculator, sequence, 1, 0.1) == [9]
    assert draft(speculator, sequence, 1, 0.5) == []
