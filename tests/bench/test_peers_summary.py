"""Ratios of pairs, the best speculation of a prompt, spread, and the bars."""

from dataclasses import replace

import pytest

from benchmarks.peers.engine import Answer
from benchmarks.peers.measure import Contestant, Sample
from benchmarks.peers.ratios import Bars, bounds_of, compare, verdicts
from benchmarks.peers.summary import (
    best_modes,
    comparable,
    lossless,
    rates,
    run_spread,
    summarise,
)
from specrt.bench.timing import WrongResultError

OWN, PEER = "specrt", "llama.cpp"
CATEGORIES = {"p": "edit", "q": "edit", "r": "prose"}
NO_BARS = Bars(None, None, None, None, "edit", False)


def answer(speed, ids=(1, 2, 3), steps=2, accepted=0, drafted=0):
    """Two ids after the first, at so many a second."""
    ids = list(ids)
    later = len(ids) - 1
    return Answer(ids, "", len(ids), 1, 10, 50.0, 1e3 * later / speed, steps, accepted, drafted)


def samples(table):
    """Of ``(engine, mode, prompt): speeds by round``."""
    return [
        Sample(Contestant(engine, mode), number, prompt, CATEGORIES[prompt], answer(speed))
        for (engine, mode, prompt), speeds in table.items()
        for number, speed in enumerate(speeds)
    ]


TABLE = {
    (OWN, "plain", "p"): [200, 400, 90],
    (PEER, "plain", "p"): [100, 100, 30],
    (OWN, "plain", "q"): [100, 100, 100],
    (PEER, "plain", "q"): [80, 80, 80],
    (OWN, "speculative", "p"): [300, 300, 300],
    (OWN, "speculative", "q"): [500, 500, 500],
    (OWN, "speculative", "r"): [10, 10, 10],
    (PEER, "ngram-mod", "p"): [100, 100, 900],
    (PEER, "ngram-simple", "p"): [150, 150, 150],
    (PEER, "ngram-mod", "q"): [250, 250, 250],
    (PEER, "ngram-simple", "q"): [10, 10, 10],
    (PEER, "ngram-mod", "r"): [100, 100, 100],
}


def test_ratios_are_medians_of_the_rounds_own_ratios():
    found = compare(rates(samples(TABLE)), OWN, PEER)
    assert found.plain == pytest.approx({"p": 3.0, "q": 1.25})  # of 2, 4, 3; not of the medians
    assert found.speculative == pytest.approx({"p": 2.0, "q": 2.0, "r": 0.1})
    assert {prompt: one.mode for prompt, one in found.best.items()} == {
        "p": "ngram-simple",
        "q": "ngram-mod",
        "r": "ngram-mod",
    }
    assert found.prefill is None


def test_plain_decoding_is_no_speculation():
    table = TABLE | {(PEER, "plain", "p"): [1e6, 1e6, 1e6]}
    assert best_modes(rates(samples(table)), PEER)["p"].mode == "ngram-simple"


def test_a_round_that_only_one_has_counts_for_none():
    table = {(OWN, "plain", "p"): [200, 400], (PEER, "plain", "p"): [100]}
    assert compare(rates(samples(table)), OWN, PEER).plain == {"p": 2.0}


def test_spread_brings_prompts_to_one_median():
    table = {(OWN, "plain", "p"): [90, 100, 110], (OWN, "plain", "q"): [900, 1000, 1100]}
    # 0.9 0.9 1 1 1.1 1.1: the quartiles are 0.925 and 1.075
    assert run_spread(rates(samples(table)), Contestant(OWN, "plain")) == pytest.approx(0.15)
    one_round = {(OWN, "plain", "p"): [90]}
    assert run_spread(rates(samples(one_round)), Contestant(OWN, "plain")) is None


@pytest.mark.parametrize(
    ("bars", "figure", "holds"),
    [
        ({"decode": 1.9}, 3.75**0.5, True),
        ({"decode": 2.0}, 3.75**0.5, False),
        ({"spec": 1.9}, 2.0, True),
        ({"spec": 2.1}, 2.0, False),
        ({"spec_least": 1.9}, 2.0, True),
        ({"spec_least": 1.0, "category": "prose"}, 0.1, False),
    ],
)
def test_a_bar_is_held_or_missed(bars, figure, holds):
    found = compare(rates(samples(TABLE)), OWN, PEER)
    (bound,) = bounds_of(found, CATEGORIES, replace(NO_BARS, **bars))
    assert bound.figure == pytest.approx(figure) and bound.holds is holds


def test_prefill_and_spread_have_bars_too():
    speeds = {(OWN, "prefill"): 20.0, (PEER, "prefill"): 40.0}
    timed = [
        Sample(Contestant(*key), 0, "0", "prefill", Answer([1], "", 1, 1, 10, ms, 0.1, 0))
        for key, ms in speeds.items()
    ]
    steady = {(OWN, "plain", "p"): [100, 100], (PEER, "plain", "p"): [90, 110]}
    found = compare(rates(timed + samples(steady)), OWN, PEER)
    bounds = bounds_of(found, CATEGORIES, Bars(None, 1.5, None, None, "edit", True))
    assert [(bound.figure, bound.holds) for bound in bounds] == [
        (pytest.approx(2.0), True),
        (0.0, True),
    ]
    assert bounds[1].bar == pytest.approx(0.1)


def test_a_bar_with_nothing_behind_it_is_missed():
    found = compare(rates(samples({(OWN, "plain", "p"): [100]})), OWN, PEER)
    bounds = bounds_of(found, CATEGORIES, Bars(2.0, 1.5, 1.8, 1.3, "edit", True))
    assert [bound.holds for bound in bounds] == [False] * 5
    assert [row["figure"] for row in verdicts(bounds)] == [None] * 5
    assert [row["bar"] for row in verdicts(bounds)] == [2.0, 1.5, 1.8, 1.3, None]


@pytest.mark.parametrize(("mine", "holds"), [([91, 109], True), ([80, 120], False)])
def test_spread_is_held_against_the_peers(mine, holds):
    speeds = {(OWN, "plain", "p"): mine, (PEER, "plain", "p"): [90, 110]}
    found = compare(rates(samples(speeds)), OWN, PEER)
    (bound,) = bounds_of(found, CATEGORIES, replace(NO_BARS, spread=True))
    assert bound.bar == pytest.approx(0.1) and bound.holds is holds


def test_our_answers_have_to_be_the_same_in_every_mode_and_round():
    def sample(engine, mode, number, ids):
        return Sample(Contestant(engine, mode), number, "p", "edit", answer(100, ids))

    same = [sample(OWN, mode, n, (1, 2, 3)) for n in (0, 1) for mode in ("plain", "speculative")]
    others = [sample(PEER, "plain", 0, (7, 8, 9)), sample(OWN, "prefill", 0, (4,))]
    assert list(lossless(same + others, OWN)) == same + others
    for mode, ids in (("speculative", (1, 9, 3)), ("plain", (1, 2, 3, 4))):
        given = lossless([*same, sample(OWN, mode, 2, ids)], OWN)
        assert [next(given) for _ in same] == same
        with pytest.raises(WrongResultError, match=f"p: specrt {mode} of round 3 differs at"):
            next(given)


def test_a_prompt_without_our_plain_answer_is_left_out():
    table = {(OWN, "plain", "p"): [100], (OWN, "speculative", "q"): [100]}
    assert [sample.prompt for sample in comparable(samples(table), OWN)] == ["p"]
    timed = Sample(Contestant(PEER, "prefill"), 0, "0", "prefill", answer(100))
    assert comparable([timed], OWN) == [timed]


def test_a_difference_in_a_later_round_is_told():
    plain = [Sample(Contestant(OWN, "plain"), n, "p", "edit", answer(100)) for n in (0, 1)]
    theirs = [
        Sample(Contestant(PEER, "plain"), n, "p", "edit", answer(100, ids))
        for n, ids in enumerate([(1, 2, 3), (1, 2, 9)])
    ]
    assert [result.differs_at for result in summarise(plain + theirs, OWN)] == [None, 2]


def test_what_differs_and_what_was_accepted_is_told():
    def sample(engine, mode, found):
        return Sample(Contestant(engine, mode), 0, "p", "edit", found)

    texts = {"same": (1, 2, 3), "other": (1, 9, 3), "longer": (1, 2, 3, 4)}
    measured = [sample(OWN, "plain", answer(100))]
    measured += [sample(PEER, mode, answer(100, ids)) for mode, ids in texts.items()]
    drafted = answer(100, (1, 2, 3), steps=1, accepted=1, drafted=4)
    measured += [sample(PEER, "drafts", drafted)]
    untold = Answer(None, "text", 3, 1, 10, 50.0, 20.0, 2)
    measured += [sample("mistral.rs", "plain", untold)]
    results = {result.mode: result for result in summarise(measured, OWN) if result.engine == PEER}
    differs = {mode: result.differs_at for mode, result in results.items()}
    assert differs == {"same": None, "other": 1, "longer": 3, "drafts": None}
    assert results["drafts"].acceptance_rate == 0.25 and results["drafts"].tokens_per_verify == 2
    assert results["same"].acceptance_rate is None and results["same"].ms_per_step == 10
    assert summarise(measured, OWN)[-1].tells_ids is False


def test_an_answer_of_one_id_has_no_speed():
    short = Answer([1], "", 1, 1, 10, 50.0, 0.0, 0)
    (result,) = summarise([Sample(Contestant(OWN, "plain"), 0, "p", "edit", short)], OWN)
    assert result.tokens_per_second is None and result.ms_per_step is None
    assert rates([Sample(Contestant(OWN, "plain"), 0, "p", "edit", short)]) == {}
