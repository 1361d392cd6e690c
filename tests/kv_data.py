"""Steps over paged caches, for the reference and the host alike."""

from __future__ import annotations

import numpy as np

from specrt.host import HostOps
from specrt.ops import PAGE
from specrt.reference import ReferenceOps
from specrt.state.step import StepInputs

HUGE = 3e4  # what cache tails hold; fits float16


def make_step(ops, positions, row_seqs, num_pages, ring_pages=0) -> StepInputs:
    """Inputs of rows at these positions; pages of the sequences are interleaved, last first."""
    num_seqs = max(row_seqs) + 1
    step = ops.step_inputs(len(positions), num_seqs, num_pages, ring_pages)
    step.positions[:], step.row_seqs[:] = positions, row_seqs
    for table, width in ((step.page_table, num_pages), (step.ring_table, ring_pages)):
        table[:] = np.arange(num_seqs * width)[::-1].reshape(width, num_seqs).T
    return step


def pages_of(cache, step, seq, positions):
    """The page of each position."""
    chunks = np.asarray(positions) // PAGE
    if cache.ring_pages:
        return step.ring_table[seq, chunks % cache.ring_pages]
    return step.page_table[seq, chunks]


def garbage_layer(ops, num_pages, num_heads, head_dim, kv_type, ring_pages=0):
    """A layer whose every slot holds huge values of both signs, or NaN scales for q8_0."""
    cache = ops.kv_layer(num_pages, num_heads, head_dim, kv_type, ring_pages)
    for name in ("k", "v", "k_scale", "v_scale"):
        array = getattr(cache, name, None)
        if array is None:
            continue
        if array.dtype == np.uint8:
            array[:] = 0x7E
        else:
            array[:] = np.nan if "scale" in name else 111 if array.dtype == np.int8 else HUGE
            array[..., ::2] *= -1 if "scale" not in name else 1
    return cache


def stored(ops, kv_type, values):
    """float32 [n, Hkv, Dh] as the cache of either op set takes them."""
    from specrt.reference.kv import encode

    return encode(values.astype(np.float32), kv_type)


def fill(ops, cache, step, seq, positions, rng):
    """Write random keys and values at these positions of a sequence; returns the stored pair."""
    shape = (len(positions), cache.num_heads, cache.head_dim)
    pair = [stored(ops, cache.kv_type, rng.standard_normal(shape)) for _ in "kv"]
    positions = np.asarray(positions)
    ops.kv_write(cache, pages_of(cache, step, seq, positions), positions, *pair)
    return pair


def reference_and_host(level):
    """Both op sets; the host at one level with one thread."""
    return ReferenceOps(), HostOps(threads=1, level=level)
