"""Rotary tables: their values bit by bit, and what making them takes."""

import tracemalloc

import numpy as np
import pytest

from specrt.models.loader import ROPE_CHUNK, make_rope
from specrt.reference import ReferenceOps


@pytest.mark.parametrize("context", [1, 77, ROPE_CHUNK, ROPE_CHUNK + 1, 2 * ROPE_CHUNK + 77])
@pytest.mark.parametrize("divisors", [None, np.linspace(1, 8, 24, dtype=np.float32)])
def test_the_table_is_the_one_made_as_a_whole(context, divisors):
    rope = make_rope(
        ReferenceOps(),
        base=10000.0,
        num_rot=48,
        context=context,
        pairing="neox",
        scale=0.125,
        divisors=divisors,
    )
    frequency = 0.125 * np.power(10000.0, -np.arange(0, 48, 2) / 48)
    if divisors is not None:
        frequency = frequency / divisors.astype(np.float64)
    angle = np.outer(np.arange(context, dtype=np.float64), frequency)
    expected = np.stack([np.cos(angle), np.sin(angle)], axis=-1).astype(np.float32)
    assert np.array_equal(rope.table, expected) and rope.pairing == "neox"


def test_a_long_table_takes_little_more_than_itself():
    tracemalloc.start()
    rope = make_rope(
        ReferenceOps(), base=1e6, num_rot=64, context=20 * ROPE_CHUNK, pairing="interleaved"
    )
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < rope.table.nbytes + 3 * 8 * ROPE_CHUNK * 32
