"""Attention over filled caches of two sequences, and what float64 makes of it."""

from __future__ import annotations

import numpy as np
from emulated import placed
from kv_data import fill, garbage_layer, make_step
from ops.rows import nans

from specrt.reference.kv import decode


def queries(num_rows, heads, dims, seed=0):
    rng = np.random.default_rng([seed, heads, dims])
    q = rng.standard_normal((100, heads * dims), dtype=np.float32)[:num_rows]
    return q * np.float32(3)


class Case:
    """Filled caches of two sequences for one op set; garbage stands below ``lowest``."""

    def __init__(
        self,
        ops,
        kv_type,
        kv_heads,
        dims,
        lengths,
        num_pages=6,
        ring_pages=0,
        lowest=(0, 0),
    ):
        self.lowest = lowest
        self.ops, self.num_pages, self.ring_pages, self.dims = ops, num_pages, ring_pages, dims
        pages = len(lengths) * (ring_pages or num_pages)
        self.cache = garbage_layer(ops, pages, kv_heads, dims, kv_type, ring_pages)
        step = make_step(ops, [0] * len(lengths), range(len(lengths)), num_pages, ring_pages)
        rng = np.random.default_rng(9)
        self.stored = []
        for seq, length in enumerate(lengths):
            pair = fill(ops, self.cache, step, seq, range(lowest[seq], length), rng)
            rows = np.full((2, length, kv_heads, dims), np.nan)
            rows[:, lowest[seq] :] = [decode(x, kv_type) for x in pair]
            self.stored.append(rows)

    def run(
        self,
        q,
        positions,
        seqs,
        window=0,
        scale=0.11,
        softcap=0.0,
        rows=slice(None),
        ahead=False,
        sinks=None,
    ):
        """With ``ahead`` rows of sequence 0 come first."""
        positions, seqs = list(positions)[rows], list(seqs)[rows]
        step = make_step(self.ops, [*positions, 0], [*seqs, 1], self.num_pages, self.ring_pages)
        step.lowest[:] = self.lowest
        if ahead:
            assert seqs == sorted(seqs)
            step.row_offsets[:] = 0, seqs.count(0), len(seqs)
        q, out = placed(q[rows]), placed(nans(*q[rows].shape))
        sinks = None if sinks is None else placed(np.asarray(sinks, np.float32))
        options = {"scale": scale, "window": window, "softcap": softcap}
        self.ops.attention(q, self.cache, step, out=out, ahead=ahead, sinks=sinks, **options)
        return out

    def oracle(
        self,
        q,
        positions,
        seqs,
        window=0,
        scale=0.11,
        softcap=0.0,
        ahead=False,
        sinks=None,
    ):
        out = []
        for row, position, seq in zip(q, positions, seqs, strict=True):
            first = max(self.lowest[seq], position - window + 1 if window else 0)
            last = position
            if ahead:
                last = max(p for p, s in zip(positions, seqs, strict=True) if s == seq)
            k, v = (x[first : last + 1].transpose(1, 0, 2) for x in self.stored[seq])
            heads = row.reshape(k.shape[0], -1, self.dims).astype(np.float64)
            s = heads @ k.transpose(0, 2, 1) * np.float64(np.float32(scale))
            if softcap:
                cap = np.float64(np.float32(softcap))
                s = cap * np.tanh(s / cap)
            sink = np.full(s.shape[1] * len(s), -np.inf) if sinks is None else np.asarray(sinks)
            sink = sink.astype(np.float64).reshape(*s.shape[:2], 1)
            top = np.maximum(s.max(-1, keepdims=True), sink)
            p = np.exp(s - top)
            out.append((p / (p.sum(-1, keepdims=True) + np.exp(sink - top)) @ v).reshape(-1))
        return np.array(out)
