"""The sampler: Philox, the twin against its meaning, counts that follow, and the distribution."""

import math
from dataclasses import replace

import numpy as np
import pytest
from sampling_data import random_params, random_row
from scipy import special, stats

from specrt._ext.sampler import Sampler
from specrt.errors import MismatchError, OptionError
from specrt.options import SamplingParams
from specrt.reference import sampling as meaning
from specrt.sampling import make_sampler
from specrt.state.draw import EDIT, ENDS, SEEN

F = np.float32
NO_HISTORY = np.zeros(0, np.int32)
LOGPROB_ERROR = 1e-12  # float64 against float64
WEIGHT_ERROR = 2.0**-22  # relative, of a float32 exp
LEAST_P_VALUE = 1e-3  # seeds are fixed: this fails always or never


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ((0,) * 4, (0,) * 2, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ],
)
def test_philox_known_answers(counter, key, words):
    assert meaning.philox4x32(counter, key) == tuple(int(w, 16) for w in words.split())


def test_uniform_takes_seed_and_position_in_full():
    assert meaning.uniform(0, 0) == 0x6627E8D5E169C58D
    pairs = [(0, 0), (1, 0), (2**32, 0), (2**63, 0), (0, 1), (0, 2**32), (0, 2**40)]
    assert len({meaning.uniform(*pair) for pair in pairs}) == len(pairs)


def test_weights_are_a_float32_exp():
    t = np.linspace(-27.0, 0.0, 100_001).astype(F)
    exact = np.exp(t.astype(np.float64)) * meaning.UNITS
    assert np.all(np.abs(meaning.weights(t) - exact) <= WEIGHT_ERROR * exact + 0.5)
    ends = np.array([0, -0.0, -29, -1e30, -np.inf, np.nan], F)
    assert meaning.weights(ends).tolist() == [2**40, 2**40, 0, 0, 0, 0]


@pytest.mark.parametrize("seed", range(20))
def test_every_mixture_draws_what_it_means(seed):
    rng = np.random.default_rng(seed)
    for _ in range(60):
        size = int(rng.choice([30, 31, 32, 33, 64, 129, 500, 3001]))
        params, ends = random_params(rng), (0, 7, size - 1, size, -1)
        sampler = make_sampler(params, size, ends)
        for position in (0, 3, 2**31 - 2):
            row = random_row(rng, size)
            history = rng.integers(0, size, rng.integers(0, 60)).astype(np.int32)
            prompt_len, suppress = int(rng.integers(0, 60)), bool(rng.integers(2))
            before = row.tobytes()
            drawn = sampler.draw(row, history, prompt_len, position, suppress)
            forbidden = ends[:3] if suppress else ()
            args = (row, history, prompt_len, params, params.seed, position, forbidden)
            assert drawn == meaning.sample(*args), (params, size)
            assert row.tobytes() == before


@pytest.mark.parametrize("spread", [0.0, 0.5, 3.0])
@pytest.mark.parametrize(
    "filters", [{}, {"top_k": 40, "top_p": 0.9}, {"top_p": 0.9}, {"top_k": 5000}]
)
def test_a_real_vocabulary_draws_what_it_means(spread, filters):
    size = 49_153
    row = np.random.default_rng(5).normal(0, spread, size).astype(F)
    params = SamplingParams(temperature=0.8, seed=9, **filters)
    sampler = make_sampler(params, size)
    for position in range(5):
        expected = meaning.sample(row, NO_HISTORY, 0, params, 9, position)
        assert sampler.draw(row, NO_HISTORY, 0, position, False) == expected


def drawn_ids(row, draws=400, **options):
    sampler = make_sampler(SamplingParams(temperature=1.0, seed=3, **options), len(row))
    row = np.array(row, F)
    return {sampler.draw(row, NO_HISTORY, 0, position, False) for position in range(draws)}


def test_ties_at_a_boundary_go_to_the_lowest_id():
    assert drawn_ids([0, 1, 1, 2, 1, 1], top_k=3) == {1, 2, 3}
    assert drawn_ids([1] * 100, top_k=40) == set(range(40))
    assert drawn_ids([1] * 10, top_p=0.5) == set(range(5))
    assert drawn_ids([1] * 10, top_p=0.51) == set(range(6))
    assert drawn_ids([-0.0, 0.0, -0.0], top_k=2) == {0, 1}


def test_filters_keep_at_least_one_and_follow_each_other():
    row = np.log([0.1, 0.2, 0.4, 0.05, 0.25])
    assert drawn_ids(row, top_p=1e-9) == {2}
    assert drawn_ids(row, min_p=1.0) == {2}
    assert drawn_ids(row, min_p=0.45) == {1, 2, 4}
    assert drawn_ids(row, top_p=0.6) == {2, 4}
    assert drawn_ids(row, top_k=2, top_p=0.62) == {2, 4}  # 0.4 is 0.615 of what top-k left
    assert drawn_ids(row, top_k=2, top_p=0.6) == {2}


def test_masked_extremes():
    nan, inf = math.nan, math.inf
    assert drawn_ids([nan, -inf, 0, nan]) == {2}
    assert drawn_ids([nan, inf, 3e38, inf]) == {1, 3}
    assert drawn_ids([nan, -inf, nan]) == {0}
    assert drawn_ids([3.4e38, -3.4e38]) == {0}
    greedy = make_sampler(SamplingParams(), 3)
    for row, best in (([nan, 1, 1], 1), ([nan, -inf, nan], 0), ([1, inf, inf], 1)):
        row = np.array(row, F)
        assert greedy.draw(row, NO_HISTORY, 0, 0, False) == best


def test_end_ids_are_suppressed_before_anything_else():
    params = SamplingParams(temperature=0, logit_bias={1: 100.0}, min_tokens=2)
    sampler = make_sampler(params, 4, end_ids=(1, 3))
    row = np.array([0, 5, 1, 9], F)
    assert sampler.draw(row, NO_HISTORY, 0, 0, True) == 2
    assert sampler.draw(row, NO_HISTORY, 0, 0, False) == 1


@pytest.mark.parametrize("seed", range(8))
def test_counts_follow_a_history_that_grows_shrinks_and_diverges(seed):
    rng, size = np.random.default_rng(seed), 50
    params = SamplingParams(
        repetition_penalty=1.2, presence_penalty=0.3, frequency_penalty=0.7, temperature=0.5, seed=1
    )
    kept = Sampler(params, 1, size)
    history = rng.integers(0, size, 3000).astype(np.int32)
    for position in range(60):
        moved = rng.integers(4)
        if moved == 0:
            history = history[: rng.integers(0, len(history) + 1)]
        elif moved == 1 and len(history):
            history = history.copy()
            history[min(rng.choice([0, 9, 1023, 1024, 2048]), len(history) - 1)] ^= 1
        grown = rng.integers(0, size, rng.choice([1, 1, 1500])).astype(np.int32)
        history = np.concatenate([history, grown])
        prompt_len = int(rng.choice([100, 100, 100, 2000]))
        row = rng.normal(0, 3, size).astype(F)
        args = (row, history, prompt_len, position, False)
        assert kept.draw(*args) == Sampler(params, 1, size).draw(*args)
        expected = meaning.sample(row, history, prompt_len, params, 1, position)
        assert kept.draw(*args) == expected


@pytest.mark.parametrize("seed", range(8))
def test_edits_are_what_options_and_history_change(seed):
    """Of one sampler whose history grows, and of whose drafts some are dropped."""
    rng, size = np.random.default_rng(seed), 50
    params = SamplingParams(logit_bias={3: 1.0, 49: -math.inf, 8: 1e300}, repetition_penalty=1.2)
    if seed % 2:
        params = replace(params, repetition_penalty=1.0)
    sampler = Sampler(params, 1, size, (8, 9, -1, size))
    history = rng.integers(0, size, 9).astype(np.int32)
    for _ in range(20):
        draft = rng.integers(0, size, rng.integers(0, 6)).tolist()
        holds_back, prompt_len = bool(rng.integers(2)), int(rng.integers(3, 6))
        edits = sampler.edits(history, prompt_len, draft, holds_back)
        assert edits.dtype == EDIT
        seen = history.tolist() if params.penalises else []
        expected = {*params.logit_bias, *seen, *(draft if seen else ())}
        expected |= {8, 9} if holds_back else set()
        assert sorted(edits["id"]) == sorted(expected)
        for token, bias, flags, count in edits.tolist():
            assert bias == {3: 1.0, 49: -math.inf, 8: math.inf}.get(token, 0)
            assert bool(flags & SEEN) == (token in seen)
            assert bool(flags & ENDS) == (holds_back and token in (8, 9))
            assert count == seen[prompt_len:].count(token)
        history = np.concatenate([history, np.array(draft[:2], np.int32)])


def test_edits_of_ids_outside_of_the_vocabulary_are_refused():
    sampler = Sampler(SamplingParams(presence_penalty=1.0), 1, 5)
    for history, draft in (([0, 5], []), ([0, 1], [5]), ([0, 1], [-1])):
        with pytest.raises(MismatchError, match="expected an id below the vocabulary's size 5"):
            sampler.edits(np.array(history, np.int32), 0, draft, False)


@pytest.mark.parametrize("seed", range(8))
def test_a_run_is_single_draws_up_to_the_first_that_is_not_the_drafts(seed):
    rng, size, lengths = np.random.default_rng(seed), 40, set()
    for _ in range(40):
        params = random_params(rng)
        rows = np.stack([random_row(rng, size) for _ in range(6)])
        history = rng.integers(0, size, 50).astype(np.int32)
        prompt_len, position, min_total = (int(n) for n in rng.integers((1, 20, 15), (20, 40, 45)))
        apart, single, draft = history.copy(), make_sampler(params, size, (3, 7)), []
        for place, row in enumerate(rows, position):
            apart[place] = single.draw(row, apart[:place], prompt_len, place, place < min_total)
            draft.append(int(apart[place]))
        num_right = int(rng.integers(0, 6))
        guesses = draft[:5]
        if num_right < 5:
            guesses[num_right] = (guesses[num_right] + 1) % size
        sampler = make_sampler(params, size, (3, 7))
        run = sampler.draw_run(rows, history, prompt_len, position, min_total, guesses)
        assert run == draft[: num_right + 1]
        lengths.add(len(run))
    assert lengths == {1, 2, 3, 4, 5, 6}


@pytest.mark.parametrize(
    ("rows", "width", "room"), [(2, 40, 9), (4, 40, 9), (3, 39, 9), (3, 40, 4)]
)
def test_a_run_of_other_shapes_is_refused(rows, width, room):
    sampler = make_sampler(SamplingParams(temperature=1.0, seed=1), 40)
    with pytest.raises(MismatchError, match="expected"):
        sampler.draw_run(np.zeros((rows, width), F), np.zeros(room, np.int32), 3, 5, 0, [0, 0])


def test_a_rejected_draft_and_a_refused_draw_leave_nothing_behind():
    params = SamplingParams(temperature=1.0, repetition_penalty=2.0, frequency_penalty=1.0, seed=4)
    rng = np.random.default_rng(2)
    rows = rng.normal(0, 1, (30, 40)).astype(F)
    plain, disturbed = make_sampler(params, 40), make_sampler(params, 40)
    ids: list[int] = [1, 2, 3]
    for row in rows:
        history = np.array(ids, np.int32)
        for wrong in range(int(rng.integers(0, 5))):
            draft = np.append(history, rng.integers(0, 40, wrong).astype(np.int32))
            disturbed.draw(rows[wrong], draft, 3, len(draft), False)
        with pytest.raises(MismatchError, match="40"):
            disturbed.draw(row, np.append(history, np.int32(40)), 3, len(ids), False)
        with pytest.raises(MismatchError, match="39"):
            disturbed.draw(row[1:], history, 3, len(ids), False)
        drawn = plain.draw(row, history, 3, len(ids), False)
        assert disturbed.draw(row, history, 3, len(ids), False) == drawn
        ids.append(drawn)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("over_seeds", [True, False])
@pytest.mark.parametrize("top_k", [0, 11])
def test_draws_follow_the_softmax(temperature, over_seeds, top_k):
    size, draws = 37, 20_000
    row = np.random.default_rng(1).normal(0, 1, size).astype(F)
    params = SamplingParams(temperature=temperature, top_k=top_k)
    kept = np.sort(np.argsort(-row)[: top_k or size])
    exact = special.softmax(row[kept].astype(np.float64) / temperature)
    counts = np.zeros(size, int)
    sampler = Sampler(params, 77, size)
    for n in range(draws):
        if over_seeds:
            sampler = Sampler(params, n * 2**33 + n, size)
        counts[sampler.draw(row, NO_HISTORY, 0, 12 if over_seeds else n, False)] += 1
    assert counts.sum() == counts[kept].sum()
    assert stats.chisquare(counts[kept], exact * draws).pvalue > LEAST_P_VALUE


@pytest.mark.parametrize("size", [1, 33, 5000])
def test_logprobs_are_the_log_softmax(size):
    row = np.round(np.random.default_rng(size).normal(0, 4, size), 1).astype(F)
    exact = special.log_softmax(row.astype(np.float64))
    order = np.argsort(-row, kind="stable")
    sampler = make_sampler(SamplingParams(), size)
    for n in (0, 1, 20, 200, 1000):
        got = sampler.logprobs(row, size // 2, n)
        assert got.token == size // 2
        assert [token for token, _ in got.top] == order[:n].tolist()
        logprobs = [got.logprob, *(logprob for _, logprob in got.top)]
        expected = exact[[size // 2, *order[:n]]]
        np.testing.assert_allclose(logprobs, expected, rtol=LOGPROB_ERROR, atol=LOGPROB_ERROR)


def test_logprobs_of_masked_extremes():
    inf, nan = math.inf, math.nan
    sampler = make_sampler(SamplingParams(), 4)
    got = sampler.logprobs(np.array([nan, 1, -inf, 1], F), 0, 4)
    half = pytest.approx(-math.log(2), rel=LOGPROB_ERROR)
    assert (got.logprob, got.top) == (-inf, ((1, half), (3, half), (0, -inf), (2, -inf)))
    none = sampler.logprobs(np.full(4, -inf, F), 1, 1)
    assert (none.logprob, none.top) == (-inf, ((0, -inf),))
    largest = sampler.logprobs(np.array([0, inf, 1, 2], F), 1, 1)
    assert (largest.logprob, largest.top) == (0, ((1, 0),))
    with pytest.raises(MismatchError, match="token 4"):
        sampler.logprobs(np.zeros(4, F), 4, 1)


def test_the_seed_is_given_or_drawn_and_reported():
    assert make_sampler(SamplingParams(seed=2**64 - 1), 4).seed == 2**64 - 1
    assert make_sampler(SamplingParams(), 4).seed != make_sampler(SamplingParams(), 4).seed
    with pytest.raises(OptionError, match="logit_bias has the id 4"):
        make_sampler(SamplingParams(logit_bias={4: 1.0}), 4)
