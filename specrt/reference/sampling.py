"""What a draw means: one token from a row of logits, as a pure function of (seed, position)."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import numpy as np

from specrt.options import SamplingParams

F = np.float32
LEAST = F(-29.0)  # exp(-29) is less than half a unit of 2^-40
UNITS = 2.0**40
FLOAT_MAX = np.finfo(F).max


def philox4x32(counter: Sequence[int], key: Sequence[int]) -> tuple[int, int, int, int]:
    """The four 32-bit words of Philox4x32-10 for a counter of four words and a key of two.

    Source: Salmon et al., Parallel random numbers: as easy as 1, 2, 3 (2011).
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (
            (p1 >> 32) ^ c1 ^ k0,
            p1 & 0xFFFFFFFF,
            (p0 >> 32) ^ c3 ^ k1,
            p0 & 0xFFFFFFFF,
        )
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c0, c1, c2, c3


def uniform(seed: int, position: int) -> int:
    """64 random bits for the token at a position; over 2^64 they are uniform in [0, 1).

    ``u = word0 2^32 + word1`` of Philox with key = seed and counter = position, low words first.
    """
    halves = [(n & 0xFFFFFFFF, n >> 32) for n in (position, seed)]
    word0, word1, _, _ = philox4x32((*halves[0], 0, 0), halves[1])
    return word0 << 32 | word1


def adjusted(
    logits: np.ndarray,
    history: Sequence[int] | np.ndarray,
    prompt_len: int,
    params: SamplingParams,
    suppressed: Collection[int] = (),
) -> np.ndarray:
    """The logits after suppression, bias and penalties, in float32; NaN becomes -inf.

    ``x += bias``; once per id of the history ``x = x / r if x > 0 else x r``; for ids of the
    output, seen ``count`` times, ``x -= presence + frequency count``.

    Args:
        logits: [V] float32.
        history: all ids so far, of which the first ``prompt_len`` are the prompt.
        suppressed: ids that cannot be drawn.

    Returns:
        [V] float32, a new array.
    """
    x = np.array(logits, F)
    ids = np.asarray(history, np.int64)
    with np.errstate(all="ignore"):
        x[list(suppressed)] = -np.inf
        for token, bias in (params.logit_bias or {}).items():
            x[token] += F(bias)
        seen = np.unique(ids)
        r = F(params.repetition_penalty)
        x[seen] = np.where(x[seen] > 0, x[seen] / r, x[seen] * r)
        output, count = np.unique(ids[prompt_len:], return_counts=True)
        frequency = F(params.frequency_penalty) * count.astype(F)
        x[output] -= F(params.presence_penalty) + frequency
    x[np.isnan(x)] = -np.inf
    return x


def scaled(x: np.ndarray, temperature: float) -> np.ndarray:
    """``(x - max x) / temperature`` in float32, as a product with the rounded reciprocal.

    A logit of +inf counts as the largest float.
    """
    x = np.minimum(x, FLOAT_MAX)
    with np.errstate(over="ignore"):
        return (x - x.max()) * F(min(1 / temperature, float(FLOAT_MAX)))


def weights(t: np.ndarray) -> np.ndarray:
    """``rint(2^40 exp(t))`` for t <= 0: whole numbers, so that their sums need no order.

    exp is a float32 polynomial without fma after ``t = n ln 2 + r``; its relative error is below
    2^-22. What is less likely than 2^-41 of the likeliest has weight 0 and is never drawn.

    Args:
        t: [n] float32.

    Returns:
        [n] int64.
    """
    t = np.where(t >= LEAST, t, LEAST)
    magic = F(3 << 22)  # adding it rounds to the nearest integer
    n = (t * F(1.4426950408889634) + magic) - magic
    r = (t - n * F(0.693359375)) - n * F(-2.12194440e-4)
    p = F(1.9875691500e-4)
    for c in (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1):
        p = p * r + F(c)
    e = (p * (r * r) + r) + F(1)
    return np.rint(np.ldexp(e.astype(np.float64), n.astype(int)) * UNITS).astype(np.int64)


def kept_weights(x: np.ndarray, params: SamplingParams) -> np.ndarray:
    """The weights of the tokens that min-p, top-k and top-p keep, 0 for all others.

    The tokens are ordered by logit, the lowest id first among equals. min-p keeps ``t >=
    log(min_p)``; top-k the first k; top-p the fewest first ones that weigh at least ``top_p``
    times what the others left.

    Args:
        x: [V] float32, adjusted logits with a maximum above -inf.

    Returns:
        [V] int64.
    """
    t = scaled(x, params.temperature)
    w = weights(t)
    if params.min_p > 0:
        w[t < F(math.log(params.min_p))] = 0
    order = np.argsort(-x, kind="stable")
    if params.top_k > 0:
        w[order[params.top_k :]] = 0
    if params.top_p < 1:
        total = int(w.sum())
        need = min(max(math.ceil(params.top_p * float(total)), 1), total)
        w[order[int(np.searchsorted(np.cumsum(w[order]), need)) + 1 :]] = 0
    return w


def sample(
    logits: np.ndarray,
    history: Sequence[int] | np.ndarray,
    prompt_len: int,
    params: SamplingParams,
    seed: int,
    position: int,
    suppressed: Collection[int] = (),
) -> int:
    """The token at a position: ``min {i : w_0 + .. + w_i > floor(u W / 2^64)}``, W the sum of w.

    Temperature 0 takes the argmax of the adjusted logits, ties to the lowest id. Without any logit
    above -inf the token is 0.

    Args:
        logits: [V] float32, raw; NaN is never drawn.
        history: all ids so far, prompt and output.
        position: where the token will stand, counted from the sequence's start.
        suppressed: ids that cannot be drawn.
    """
    x = adjusted(logits, history, prompt_len, params, suppressed)
    if params.temperature == 0 or x.max() == -np.inf:
        return int(np.argmax(x))
    sums = np.cumsum(kept_weights(x, params))
    target = uniform(seed, position) * int(sums[-1]) >> 64
    return int(np.searchsorted(sums, target, side="right"))
