"""Walks over random scores of a lattice, for the benchmark of host work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import repeat
from typing import Final

import numpy as np

from specrt._ext.lattice_walk import walk
from specrt.bench.timing import WrongResultError

BLOCKS: Final = ((7, 8), (15, 16))
"""Rows and candidates of a block."""

Walk = tuple[list[int], list[float]]


def walk_calls(num_rows: int, k: int, calls: int) -> Iterator[Callable[[], Walk]]:
    """That many walks through all rows.

    Raises:
        WrongResultError: the ids are not those of a plain walk; checked here.
    """
    rng = np.random.default_rng(0)
    ids = rng.integers(0, 150_000, (num_rows, k)).astype(np.int32)
    scores = rng.normal(0, 3, k + k * k * (num_rows - 1)).astype(np.float32)
    tokens, _ = walk(ids, scores, num_rows)
    if tokens != plain_walk(ids, scores):
        raise WrongResultError(f"walk {num_rows} x {k}: {tokens} differs from a plain walk")
    return repeat(partial(walk, ids, scores, num_rows), calls)


def plain_walk(ids: np.ndarray, scores: np.ndarray) -> list[int]:
    """The ids along each row's largest score behind the one before.

    Args:
        ids: [n, k] int32.
        scores: [k + k k (n - 1)] f32.
    """
    n, k = ids.shape
    picks = [int(np.argmax(scores[:k]))]
    for pairs in scores[k:].reshape(n - 1, k, k):
        picks.append(int(np.argmax(pairs[picks[-1]])))
    return [int(row[pick]) for row, pick in zip(ids, picks, strict=True)]
