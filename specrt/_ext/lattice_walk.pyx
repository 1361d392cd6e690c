"""The host's part of a block draft: which of each row's candidates follow one another."""

from libc.math cimport INFINITY

from specrt.errors import MismatchError

cdef extern from "math.h" nogil:
    float expf(float x)


def walk(const int[:, ::1] ids, const float[::1] scores, int num_draft):
    """The greedy walk: each row's best candidate behind the one picked in the row before.

    The lowest index wins among the largest, NaN never.

    Args:
        ids: [n, k] int32, the candidates.
        scores: [k + k k (n - 1)] f32, as the op ``lattice`` writes them: row 0, then
            [k predecessors, k candidates] of each further row.
        num_draft: how many to pick at most.

    Returns:
        The picked ids, and of each ``1 / sum_i exp(s_i - s_picked)`` over the k scores that it was
        picked from, NaN if one of those is.

    Raises:
        MismatchError: the scores are not as many as the candidates ask for.
    """
    cdef Py_ssize_t n = ids.shape[0], k = ids.shape[1]
    if k < 1 or n < 1 or scores.shape[0] != k + k * k * (n - 1):
        raise MismatchError(
            f"candidates [{n}, {k}] and {scores.shape[0]} scores: expected one candidate or more, "
            f"and {k + k * k * (n - 1)} scores (k + k k (n - 1))"
        )
    return follow(&ids[0, 0], &scores[0], k, min(n, num_draft), k * k, k)


def pick(const int[:, ::1] ids, const float[:, ::1] logits, int num_draft):
    """Each row's best candidate, for drafters whose rows know no predecessor.

    Args:
        ids: [n, k] int32, the candidates.
        logits: [n, k] f32.
        num_draft: how many to pick at most.

    Returns:
        As ``walk``: the ids, and the softmax of each over its row of k.

    Raises:
        MismatchError: ids and logits differ in shape.
    """
    cdef Py_ssize_t n = ids.shape[0], k = ids.shape[1]
    if k < 1 or n < 1 or logits.shape[0] != n or logits.shape[1] != k:
        raise MismatchError(
            f"candidates [{n}, {k}] and logits [{logits.shape[0]}, {logits.shape[1]}]: "
            f"expected one candidate or more, and a logit of each"
        )
    return follow(&ids[0, 0], &logits[0, 0], k, min(n, num_draft), k, 0)


cdef tuple follow(const int *ids, const float *scores, Py_ssize_t k, Py_ssize_t num_picks,
                  Py_ssize_t row, Py_ssize_t predecessor):
    """Picks from the first k scores, then from blocks of ``row`` scores behind them.

    In a block the k scores to pick from lie at ``predecessor`` times the index of the pick before.
    """
    cdef const float *block = scores + k
    cdef Py_ssize_t t, picked
    cdef float probability = 0
    cdef list tokens = [], probabilities = []
    for t in range(num_picks):
        picked = best_of(scores, k, &probability)
        tokens.append(ids[t * k + picked])
        probabilities.append(probability)
        scores = block + t * row + picked * predecessor
    return tokens, probabilities


cdef Py_ssize_t best_of(const float *scores, Py_ssize_t k, float *probability) noexcept nogil:
    """The index of the largest score and its softmax."""
    cdef Py_ssize_t i, best = 0
    cdef float largest = -INFINITY, total = 0
    for i in range(k):
        if scores[i] > largest:
            best, largest = i, scores[i]
    for i in range(k):
        total += expf(scores[i] - largest)
    probability[0] = 1 / total
    return best
