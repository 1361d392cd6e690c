"""Rows for recurrent layers, and windows of them, of which parts are taken back."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from specrt.state.recurrent import MOST_KEPT, RecurrentLayer, RecurrentShape
from specrt.state.sequence import Cursor
from specrt.state.step import StepInputs

F = np.float32
SHAPES = (
    RecurrentShape(2, 4, 32, 32, 4),
    RecurrentShape(1, 1, 16, 16, 2),
    RecurrentShape(2, 6, 40, 72, 3),
    RecurrentShape(3, 3, 9, 130, 1),
)


@dataclass
class Rows:
    """Inputs of a gated delta layer."""

    qkv: np.ndarray
    alpha: np.ndarray
    beta: np.ndarray
    a: np.ndarray
    dt_bias: np.ndarray
    weight: np.ndarray

    def part(self, begin: int, end: int) -> Rows:
        return Rows(
            *(x[begin:end].copy() for x in (self.qkv, self.alpha, self.beta)),
            self.a,
            self.dt_bias,
            self.weight,
        )


def random_rows(shape: RecurrentShape, num_rows: int, seed: int = 0) -> Rows:
    rng = np.random.default_rng([num_rows, seed])
    heads = shape.value_heads
    return Rows(
        qkv=rng.standard_normal((num_rows, shape.channels), dtype=F),
        alpha=rng.normal(0, 3, (num_rows, heads)).astype(F),
        beta=rng.normal(0, 2, (num_rows, heads)).astype(F),
        a=-np.exp(rng.normal(-1, 1, heads)).astype(F),
        dt_bias=rng.normal(0, 1, heads).astype(F),
        weight=rng.normal(0, 0.5, (shape.channels, shape.conv_kernel)).astype(F),
    )


def garbage(shape: RecurrentShape, num_slots: int) -> RecurrentLayer:
    """A layer of which nothing was written yet: all it holds is NaN."""
    layer = RecurrentLayer(shape, num_slots)
    for array in (layer.states, layer.tails, layer.log_u, layer.log_k, layer.log_delta):
        array[:] = np.nan
    layer.log_decay[:] = np.nan
    return layer


def step_of(windows: list[tuple[int, Cursor, int]], num_seqs: int | None = None) -> StepInputs:
    """Inputs for windows (slot, cursor, rows), one behind the other."""
    total = sum(rows for _, _, rows in windows)
    step = StepInputs(max(total, 1), num_seqs or len(windows), 1, 0)
    end = 0
    for number, (slot, cursor, rows) in enumerate(windows):
        begin, end = end, end + rows
        step.positions[begin:end] = np.arange(cursor.cache_len, cursor.cache_len + rows)
        step.slots[number], step.live[number] = slot, cursor.live
        step.pending[number] = cursor.pending
        step.row_offsets[number + 1 :] = end
    return step


def random_windows(rng: np.random.Generator, num_rows: int) -> list[tuple[int, int]]:
    """(rows, how many of them are kept) until so many are kept; some are taken back whole."""
    windows, done = [], 0
    while done < num_rows:
        rows = min(int(rng.choice([1, 2, 3, 5, 9, 65, 69, 128])), num_rows - done)
        kept = rows if rows > MOST_KEPT else int(rng.integers(0, rows + 1))
        windows.append((rows, kept))
        done += kept
    return windows
