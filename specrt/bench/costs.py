"""What a forward of T rows costs, measured."""

from __future__ import annotations

from contextlib import closing
from functools import partial

import numpy as np

from specrt.bench.timing import interleaved
from specrt.kernels import KernelOps
from specrt.llm import LLM
from specrt.options import MAX_DRAFT, SamplingParams
from specrt.speculative.simulator import Costs
from specrt.state.messages import Window
from specrt.stats import Stats

WARM_TOKENS = 1023
"""A prefill of every chunk size from 512 down to 1."""
WARM_STEPS = 2
"""Kernels run in the first, and there is a graph from the second on."""


def warm_up(llm: LLM, most: int) -> None:
    """Record the programs of 1 .. ``most`` rows, and touch the pages of two sequences."""
    with closing(llm.session()):
        row_seconds(llm, most, WARM_TOKENS, rounds=1)
    row_seconds(llm, most, WARM_TOKENS, rounds=1)


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


def launches_per_step(llm: LLM, steps: int = 4) -> float | None:
    """What a GPU is given to run in a plain greedy step, once all is warm; a graph is one.

    None for op sets that launch nothing.
    """
    ops = llm.target.ops
    if not isinstance(ops, KernelOps):
        return None
    params = SamplingParams(max_tokens=steps + WARM_STEPS, ignore_eos=True)
    sequence = llm.target.open_sequence()
    try:
        request = llm.generator.request(sequence, [0, 0], params, "none")
        runtime = llm.generator.runtime
        runtime.prefill(request)
        for _ in range(WARM_STEPS):
            runtime.step([request])
        before = ops.num_launches
        for _ in range(steps):
            runtime.step([request])
    finally:
        llm.target.close_sequence(sequence)
    return (ops.num_launches - before) / steps


def steps_seconds(stats: Stats, costs: np.ndarray) -> float:
    """What the steps of a completion should take together.

    Args:
        costs: [65] float64, of a step by its K.
    """
    return sum(count * float(costs[k]) for k, count in stats.num_draft_counts.items())


def replay_costs(rows: np.ndarray) -> Costs:
    """A measured curve for the simulator; past its end it goes on at its mean slope."""
    most = len(rows)
    slope = (rows[-1] - rows[0]) / (most - 1)
    beyond = rows[-1] + slope * np.arange(1, MAX_DRAFT + 2 - most)
    return Costs(np.concatenate([rows, beyond]))
