"""The walk over a lattice's scores, against plain code."""

import numpy as np
import pytest
from accuracy import assert_accurate

from specrt._ext.lattice_walk import pick, walk
from specrt.errors import MismatchError

SHAPES = [(15, 16), (7, 8), (1, 5), (3, 1)]


def lattice(rng, n, k):
    """Ids [n, k], and scores in which many tie."""
    ids = rng.permutation(10_000)[: n * k].reshape(n, k).astype(np.int32)
    return ids, (rng.integers(-40, 40, k + k * k * (n - 1)) / 8).astype(np.float32)


def rows_of(scores, n, k):
    """Row t's [predecessors, candidates]."""
    behind = scores[k:].reshape(n - 1, k, k)
    return [scores[:k].reshape(1, k), *behind]


def plain_walk(ids, rows, dtype=np.float64):
    before, tokens, probabilities = 0, [], []
    for candidates, pairs in zip(ids, rows, strict=True):
        row = pairs[before if len(pairs) > 1 else 0].astype(dtype)
        before = int(np.argmax(np.where(np.isnan(row), -np.inf, row)))
        tokens.append(int(candidates[before]))
        with np.errstate(invalid="ignore"):
            probabilities.append(1 / np.sum(np.exp(row - row[before]), dtype=dtype))
    return tokens, np.array(probabilities, dtype)


def assert_walks(got, ids, rows, num_picks):
    tokens, probabilities = plain_walk(ids, rows)
    assert got[0] == tokens[:num_picks] and len(got[1]) == len(got[0])
    assert all(type(token) is int for token in got[0])
    assert all(type(one) is float for one in got[1])
    finite = np.isfinite(probabilities[:num_picks])
    given = np.array(got[1], np.float32)
    assert np.isfinite(given).tolist() == finite.tolist()
    if finite.any():
        baseline = plain_walk(ids, rows, np.float32)[1][:num_picks]
        assert_accurate(given[finite], baseline[finite], probabilities[:num_picks][finite])


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", range(5))
def test_each_row_follows_the_pick_before(shape, seed):
    n, k = shape
    ids, scores = lattice(np.random.default_rng(seed), n, k)
    for num_draft in (0, 1, n - 1, n, n + 1, -1):
        got = walk(ids, scores, num_draft)
        assert_walks(got, ids, rows_of(scores, n, k), min(n, max(0, num_draft)))


@pytest.mark.parametrize("shape", SHAPES)
def test_picks_know_no_predecessor(shape):
    n, k = shape
    rng = np.random.default_rng(3)
    ids = rng.integers(0, 9000, (n, k)).astype(np.int32)
    logits = -np.sort(-rng.normal(0, 3, (n, k)).astype(np.float32))
    for num_draft in (0, 1, n, n + 1):
        got = pick(ids, logits, num_draft)
        assert got[0] == ids[:num_draft, 0].tolist()
        assert_walks(got, ids, logits[:, None], min(n, num_draft))


@pytest.mark.parametrize("bad", [np.nan, -np.inf, np.inf])
def test_what_is_not_finite(bad):
    rng = np.random.default_rng(4)
    for share in (0.1, 0.5, 1.0):
        ids, scores = lattice(rng, 15, 8)
        scores[rng.random(scores.size) < share] = bad
        rows = rows_of(scores, 15, 8)
        assert_walks(walk(ids, scores, 15), ids, rows, 15)
        logits = scores[: 15 * 8].reshape(15, 8)
        assert_walks(pick(ids, logits, 15), ids, logits[:, None], 15)


def test_the_lowest_index_wins_and_nan_never():
    ids = np.array([[7, 3, 5], [4, 9, 1]], np.int32)
    scores = np.array([1, 2, 2, *(np.nan,) * 3, np.nan, 0, 0, *(9,) * 3], np.float32)
    tokens, probabilities = walk(ids, scores, 2)
    assert tokens == [3, 9] and np.isnan(probabilities[1])
    assert probabilities[0] == pytest.approx(1 / (2 + np.exp(-1)))


def test_read_only_results_are_taken():
    ids, scores = lattice(np.random.default_rng(5), 3, 4)
    expected = walk(ids, scores, 3)
    ids.flags.writeable = scores.flags.writeable = False
    assert walk(ids, scores, 3) == expected


@pytest.mark.parametrize("size", [4 + 16 * 2 - 1, 4 + 16 * 3, 0])
def test_scores_of_another_size_are_told(size):
    with pytest.raises(MismatchError, match=rf"\[3, 4\] and {size} scores: .*36 scores"):
        walk(np.zeros((3, 4), np.int32), np.zeros(size, np.float32), 3)


@pytest.mark.parametrize("shape", [(3, 5), (2, 4), (4, 4)])
def test_logits_of_another_shape_are_told(shape):
    with pytest.raises(MismatchError, match=r"candidates \[3, 4\] and logits"):
        pick(np.zeros((3, 4), np.int32), np.zeros(shape, np.float32), 3)


@pytest.mark.parametrize("shape", [(0, 4), (3, 0), (0, 0)])
def test_no_candidates_are_told(shape):
    with pytest.raises(MismatchError, match="expected one candidate or more"):
        walk(np.zeros(shape, np.int32), np.zeros(0, np.float32), 3)
    with pytest.raises(MismatchError, match="expected one candidate or more"):
        pick(np.zeros(shape, np.int32), np.zeros(shape, np.float32), 3)
