"""What the governor takes drafts to cost and to land before it knows, and as machines change."""

import pytest

from specrt.options import GovernorOptions
from specrt.speculative.governor import Governor
from specrt.speculative.simulator import DRAFTER

PLAIN = 0.01


def plain_step(policy, seconds: float = PLAIN):
    policy.rows.add(0, seconds)
    policy.observe(0, 0)


def test_what_passed_a_gate_is_expected_to_match():
    """A draft that would not pay by the prior goes out in full at once."""
    for gate, expected in ((0.0, 1), (0.9, 4)):
        policy = Governor(GovernorOptions(probe=1)).policy()
        policy.rows.seed({0: PLAIN, 8: 2 * PLAIN})
        policy.seed_draft_costs(DRAFTER, {0: 0.3 * PLAIN, 4: PLAIN})
        assert policy.num_draft(DRAFTER, 8, 0, gate) == expected


def test_a_drafters_own_confidence_stands_for_matches_that_were_not_seen_yet():
    for confidence, expected in ((0.97, 4), (0.3, 1)):
        policy = Governor(GovernorOptions(probe=1)).policy()
        policy.rows.seed({0: PLAIN, 8: 2 * PLAIN})
        policy.seed_draft_costs(DRAFTER, {0: 0.3 * PLAIN, 4: PLAIN})
        assert policy.num_draft(DRAFTER, 4) == 1
        policy.proposed(DRAFTER, 4, PLAIN, [confidence] * 4)
        policy.observe(0, 0)  # none of them was verified
        assert policy.num_draft(DRAFTER, 4) == expected


def test_drafts_are_measured_by_plain_steps():
    """On a machine that became half as fast they cost as many as before."""
    governor = Governor()
    policy = governor.policy()
    for factor in (1, 2):
        for _ in range(20):
            plain_step(policy, factor * PLAIN)
        policy.proposed(DRAFTER, 2, factor * PLAIN / 2, [])
        assert governor.drafts[DRAFTER].at(2) == pytest.approx(0.5, rel=0.05)


def test_a_draft_behind_a_pause_is_paid_for_and_teaches_nothing():
    """Its caches are cold: drafts in a row do not cost so much."""
    governor = Governor(GovernorOptions(first_credit=8.0))
    policy = governor.policy()
    policy.rows.seed({0: PLAIN, 2: PLAIN})
    policy.seed_draft_costs(DRAFTER, {0: PLAIN / 2, 2: PLAIN / 2})
    for pause in (0, 1, 4):
        for _ in range(pause):
            plain_step(policy)
        before = policy.credit
        assert policy.num_draft(DRAFTER, 2) == 2
        policy.proposed(DRAFTER, 2, 0.9 * PLAIN, [])
        policy.rows.add(2, PLAIN)
        policy.observe(2, 2)
        assert policy.credit - before == pytest.approx(2 - 0.9 + 3 * 0.011)
        assert governor.drafts[DRAFTER].at(2) == 0.5
    policy.num_draft(DRAFTER, 2)
    policy.proposed(DRAFTER, 2, 0.9 * PLAIN, [])
    assert governor.drafts[DRAFTER].at(2) > 0.5


def test_a_parked_drafter_that_became_dear_is_paid_for_as_that():
    """All its drafts are behind a pause; ten times as dear as measured, they lose no more."""
    policy = Governor().policy()
    policy.rows.seed({0: PLAIN, 4: 2 * PLAIN})
    policy.seed_draft_costs(DRAFTER, {0: 0.3 * PLAIN, 4: 0.3 * PLAIN})
    for dearness in (0.6, 1.5, 3.0):
        lost = 0.0
        for _ in range(4000):
            num_draft = policy.num_draft(DRAFTER, 4)
            if num_draft:
                policy.proposed(DRAFTER, num_draft, dearness * PLAIN, [])
                lost += dearness
            seconds = policy.rows.at(num_draft)
            lost += seconds / PLAIN - 1
            policy.rows.add(num_draft, seconds)
            policy.observe(num_draft, 0)
        assert lost < 0.02 * 4000, dearness


def test_drafts_beside_another_sequence_cost_what_they_take():
    """Two sequences from the first step on, so a step of one was never seen."""
    policy = Governor().policy()
    drafting = 0
    for _ in range(300):
        num_draft = policy.num_draft(DRAFTER, 4, 1)
        if num_draft:
            policy.proposed(DRAFTER, num_draft, 100 * PLAIN, [])
        drafting += num_draft > 0
        policy.rows.add(1 + num_draft, 3 * PLAIN)
        policy.observe(num_draft, num_draft // 2, 0.0, 1)
    assert drafting < 30


def test_drafts_are_measured_once_plain_steps_are_known():
    policy = Governor().policy()
    plain_step(policy)
    policy.proposed(DRAFTER, 2, PLAIN, [])
    assert not policy.wants_draft_costs(DRAFTER)
    plain_step(policy)
    plain_step(policy)
    assert policy.wants_draft_costs(DRAFTER)
    policy.seed_draft_costs(DRAFTER, {})
    assert not policy.wants_draft_costs(DRAFTER)
