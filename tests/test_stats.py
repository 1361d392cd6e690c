"""Statistics: what is derived from counts and times."""

import pytest

from specrt.stats import HopSeconds, Phases, Stats


def stats_of(*steps, plain_step_ms=None, **phases):
    stats = Stats(plain_step_ms=plain_step_ms, phases=Phases(**phases))
    for num_draft, num_accepted in steps:
        stats.count_step(num_draft, num_accepted)
    return stats


def test_counts_and_origins():
    stats = stats_of((0, 0), (3, 1), (2, 2), (4, 0))
    assert (stats.steps, stats.draft_steps, stats.emitted) == (4, 3, 7)
    assert (stats.num_drafted, stats.num_accepted) == (9, 3)
    assert (stats.drafted_at, stats.accepted_at) == ([3, 3, 2, 1], [2, 1, 0, 0])
    assert stats.num_draft_counts == {0: 1, 2: 1, 3: 1, 4: 1}
    assert stats.num_accepted_counts == {0: 2, 1: 1, 2: 1}
    assert stats.origins == [
        "plain", "accepted", "corrected", "accepted", "accepted", "bonus", "corrected",
    ]  # fmt: skip
    assert stats.acceptance_rate == 3 / 9 and stats.acceptance_length == 2


def test_decoding_leaves_prefill_out():
    stats = stats_of((0, 0), (0, 0), prefill=50, catch_up=7, plain=10)
    assert stats.decode_ms == 10 and stats.tokens_per_second == 200


@pytest.mark.parametrize(
    ("steps", "phases", "measured", "ratio"),
    [
        (((0, 0), (0, 0), (3, 3)), {"plain": 20, "verify": 20}, None, 1.5),
        (((0, 0), (0, 0), (3, 3)), {"plain": 20, "verify": 20}, 30.0, 1.5),
        (((0, 0), (0, 0), (3, 3)), {"plain": 20, "verify": 20}, 8.0, 1.2),
        (((3, 3),), {"verify": 20}, 10.0, 2.0),
        (((3, 3),), {"verify": 20}, None, None),
        ((), {}, 10.0, None),
    ],
)
def test_ratio_to_plain_takes_the_lower_cost(steps, phases, measured, ratio):
    assert stats_of(*steps, plain_step_ms=measured, **phases).ratio_to_plain == ratio


def test_rejected_drafts_are_no_gain():
    stats = stats_of((0, 0), (2, 0), plain=10, verify=12, draft=1, plain_step_ms=40.0)
    assert stats.ratio_to_plain < 1


def test_a_step_is_plain_or_a_verify():
    phases = Phases(verify=1.0)
    phases.add_step(HopSeconds(0.001, 0.002, 0.003, 0.004, 0.005, 0.006), plain=True)
    phases.add_step(HopSeconds(0.001, 0.002, 0.003, 0.004, 0.005, 0.006), plain=False)
    assert phases == Phases(
        commit=2.0, draft=4.0, plain=7.0, verify=8.0, accept=10.0, rollback=12.0
    )
