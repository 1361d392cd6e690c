"""What speculation should gain: by acceptance, and by what rows and drafts cost."""

import numpy as np
import pytest

from specrt.bench.pairs import Pair, Run
from specrt.bench.prediction import RowCosts, bounds_of, predicted_ratio, predictions
from specrt.bench.prompts import Prompt
from specrt.completion import Completion
from specrt.stats import Stats

PROMPT = Prompt("p", "prose", ({"role": "user", "content": "x"},))


def run_of(num_tokens, seconds, steps=(), draft_ms=0.0, speculator="ngram"):
    stats = Stats(speculator=speculator)
    for num_draft, num_accepted in steps:
        stats.count_step(num_draft, num_accepted)
    stats.phases.draft, stats.phases.commit = draft_ms, draft_ms
    return Run(Completion("t", list(range(num_tokens)), "length", [], stats, [1]), seconds)


def pair_of(spec_seconds, draft_ms=0.0, prompt=PROMPT, speculator="ngram"):
    """Ten tokens: a second each in plain steps, two drafts of four and a plain step with one."""
    spec = run_of(10, spec_seconds, ((4, 4), (4, 3), (0, 0)), draft_ms, speculator)
    return Pair(prompt, 1, run_of(10, 10.0), spec)


COSTS = np.array([0.5, 0.6, 0.7, 0.8, 1.0])  # rows 1 .. 5: five cost two plain steps


def test_steps_cost_what_their_rows_do_beside_plain_ones():
    costs = np.concatenate([COSTS, np.full(60, 9.0)])
    assert predicted_ratio(pair_of(1.0), costs) == pytest.approx(10 / (2 + 2 + 1))
    # Half a second of drafts and half of commits is one plain step.
    assert predicted_ratio(pair_of(1.0, draft_ms=500.0), costs) == pytest.approx(10 / 6)


def test_the_machine_may_change_its_speed_between_rows_and_pairs():
    for speed in (1.0, 3.0):
        (found,) = predictions([pair_of(5.0), RowCosts(COSTS * speed)])
        assert found.ratio == pytest.approx(2.0) and found.share.median == pytest.approx(1.0)
        assert found.tokens_per_second == pytest.approx(2.0)


def test_each_pair_is_held_to_the_costs_behind_it():
    """Five rows that cost twice as much beside one make the same time the right one."""
    dear = np.array([0.5, 0.8, 1.1, 1.5, 2.0])
    found = [pair_of(5.0), RowCosts(COSTS), pair_of(9.0), RowCosts(dear)]
    (prediction,) = predictions(found)
    assert prediction.share.low == prediction.share.high == pytest.approx(1.0)


def test_the_least_prompt_is_bound():
    other = Prompt("q", "prose", PROMPT.messages)
    pairs = [pair_of(5.0), pair_of(10.0), pair_of(4.0, prompt=other)]
    found = predictions([one for pair in pairs for one in (pair, RowCosts(COSTS))])
    assert [one.share.median for one in found] == pytest.approx([0.75, 1.25])
    (bound,) = bounds_of(found)
    assert (bound.figure, bound.bar, bound.holds) == (pytest.approx(0.75), 0.92, False)


def test_nothing_is_predicted_of_what_was_not_measured_or_does_not_draft():
    assert predictions([pair_of(5.0), pair_of(5.0)]) == []
    assert predictions([pair_of(5.0, speculator=None), RowCosts(COSTS)]) == []
    assert bounds_of([]) == []
