"""Attention of one query in plain array code, every sum in the order that the host keeps."""

from __future__ import annotations

import numpy as np

from specrt.ops import PAGE
from specrt.reference.fma import fma32

CHAIN = 64  # dims of a dot that one chain of fmas adds
LANES = 16
EXP = [1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2]
EXP += [1.6666665459e-1, 5.0000001201e-1, 1.0, 1.0]
TANH = [-5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1]


def f32(x):
    return np.asarray(x, np.float32)


def horner(factors, x):
    """The polynomial with the first factor at its highest power."""
    sum_ = f32(factors[0])
    for factor in factors[1:]:
        sum_ = fma32(sum_, x, f32(factor))
    return sum_


def exp32(x):
    """exp of x <= 0 or moderate, as simd.h has it."""
    t = np.clip(x, f32(-88), f32(89))
    n = np.rint(t * f32(float.fromhex("0x1.715476p+0")))
    r = fma32(n, f32(-float.fromhex("0x1.62e400p-1")), t)
    r = fma32(n, f32(-float.fromhex("0x1.7f7d1cp-20")), r)
    return np.where(x < f32(-87), f32(0), np.ldexp(horner(EXP, r), n.astype(np.int32)))


def tanh32(x):
    """tanh as simd.h has it."""
    a = np.abs(x)
    z = a * a
    small = fma32(horner(TANH, z) * z, a, a)
    large = f32(1) - f32(2) / (exp32(a + a) + f32(1))
    return np.copysign(np.where(a < f32(0.625), small, large), x)


def attend_chunk(q, k, v, scale, softcap):
    """Largest score, sum of weights and weighted values; keys [64, Dh], NaN where hidden."""
    scores = np.zeros(PAGE, np.float32)
    for first in range(0, len(q), CHAIN):
        sums = np.zeros(PAGE, np.float32)
        for d in range(first, min(first + CHAIN, len(q))):
            sums = fma32(q[d], k[:, d], sums)
        scores = scores + sums
    visible = ~np.isnan(k[:, 0])
    scores = np.where(visible, scores * scale, f32(0))
    if softcap:
        scores = softcap * tanh32(scores / softcap)
    top = scores[visible].max()
    weights = np.where(visible, exp32(scores - top), f32(0))
    lanes = np.zeros(LANES, np.float32)
    for some in weights.reshape(-1, LANES):
        lanes = lanes + some
    while len(lanes) > 1:
        lanes = lanes[: len(lanes) // 2] + lanes[len(lanes) // 2 :]
    values = np.zeros(v.shape[1], np.float32)
    for j in np.flatnonzero(visible):
        values = fma32(weights[j], v[j], values)
    return top, lanes[0], values


def merge(total, top, weight, value):
    largest = np.maximum(total[0], top)
    a, b = (exp32(np.maximum(x - largest, f32(-1e9))) for x in (total[0], top))
    return largest, total[1] * a + weight * b, fma32(total[2], a, value * b)


def attend(q, k, v, first, scale, softcap=0.0, sink=None):
    """The result of q [Dh] over the keys k [n, Dh] and values from position first on."""
    scale, softcap = f32(scale), f32(softcap)
    num_chunks = -(-len(k) // PAGE)
    keys, values = np.full((2, num_chunks * PAGE, len(q)), np.nan, np.float32)
    keys[first : len(k)], values[first : len(k)] = k[first:], v[first:]
    total = f32(-np.inf), f32(0), np.zeros(len(q), np.float32)
    for chunk in range(first // PAGE, num_chunks):
        part = slice(chunk * PAGE, chunk * PAGE + PAGE)
        top, weight, value = attend_chunk(q, keys[part], values[part], scale, softcap)
        total = merge(total, top, weight, value)
    if sink is not None:
        total = merge(total, f32(sink), f32(1), np.zeros_like(total[2]))
    return total[2] * (f32(1) / total[1])
