"""What a forward of T rows costs, measured."""

from __future__ import annotations

from functools import partial

import numpy as np

from specrt.bench.timing import interleaved
from specrt.llm import LLM
from specrt.options import MAX_DRAFT, SamplingParams
from specrt.speculative.simulator import Costs
from specrt.state.messages import Window


def row_seconds(llm: LLM, most: int, cached: int, rounds: int) -> np.ndarray:
    """Median seconds of a verify by its number of rows, all numbers interleaved.

    The first round, in which programs are recorded, does not count.

    Args:
        most: rows of the largest verify.
        cached: tokens that the sequence has consumed before.
        rounds: samples of each.

    Returns:
        [most] float64, of 1 .. ``most`` rows.
    """
    cached = max(1, min(cached, llm.context - most))
    tokens = np.random.default_rng(0).integers(0, llm.target.vocab_size, cached + most).tolist()
    sequence = llm.target.open_sequence()
    try:
        request = llm.generator.request(
            sequence, tokens[: cached + 1], SamplingParams(max_tokens=1), "none"
        )
        llm.generator.runtime.prefill(request)
        calls = {
            rows: partial(
                llm.target.verify, [Window(sequence, tokens[cached : cached + rows], cached)]
            )
            for rows in range(1, most + 1)
        }
        interleaved(calls, 1)
        seconds = interleaved(calls, rounds)
    finally:
        llm.target.close_sequence(sequence)
    return np.array([np.median(seconds[rows]) for rows in calls])


def replay_costs(rows: np.ndarray) -> Costs:
    """A measured curve for the simulator; past its end it goes on at its mean slope."""
    most = len(rows)
    slope = (rows[-1] - rows[0]) / (most - 1)
    beyond = rows[-1] + slope * np.arange(1, MAX_DRAFT + 2 - most)
    return Costs(np.concatenate([rows, beyond]))
