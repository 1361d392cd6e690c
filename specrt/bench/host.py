"""What a step does outside the model: n-gram, governor and sampler, in microseconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from specrt.bench.cases import HISTORIES, SAMPLER_CASES, VOCABULARIES, SamplerCase
from specrt.bench.timing import WrongResultError
from specrt.options import SamplingParams
from specrt.reference.sampling import sample
from specrt.sampling import make_sampler
from specrt.speculative.algorithms.ngram import NgramSpeculator
from specrt.speculative.governor import Governor
from specrt.state.messages import DraftContext, Kept
from specrt.state.sequence import Cursor, Sequence

STEPS = 5_000
NUM_DRAFT = 8
KEPT = 3


@dataclass(frozen=True, slots=True)
class HostRow:
    """One measured case, in seconds of a call."""

    name: str
    case: str
    median: float
    p999: float

    @classmethod
    def of(cls, name: str, case: str, seconds: np.ndarray) -> HostRow:
        """From the seconds of every call."""
        return cls(name, case, float(np.median(seconds)), float(np.quantile(seconds, 0.999)))

    def as_json(self) -> dict:
        """Plain values."""
        microseconds = {"median_us": 1e6 * self.median, "p99.9_us": 1e6 * self.p999}
        return {"name": self.name, "case": self.case, **microseconds}


def measure() -> Iterator[HostRow]:
    """Every case.

    Raises:
        WrongResultError: a proposal or a drawn id is wrong.
    """
    for length in HISTORIES:
        yield ngram(length)
    yield governor()
    for vocab_size in VOCABULARIES:
        for case in SAMPLER_CASES:
            yield sampler(case, vocab_size)


def ngram(length: int, steps: int = STEPS) -> HostRow:
    """Propose 8 and commit 3 kept rows a step, behind a history of that length."""
    ids = copied_text(length + KEPT * (steps + 1) + 1)
    speculator, sequence = NgramSpeculator(), Sequence(0, len(ids))
    sequence.history[: len(ids)] = ids
    sequence.cursor = Cursor(num_tokens=length)
    speculator.propose([DraftContext(sequence, NUM_DRAFT)])
    seconds = np.empty(steps)
    for step in range(steps):
        start = length + KEPT * step
        sequence.cursor = Cursor(num_tokens=start + KEPT)
        tokens = ids[start - 1 : start + KEPT].tolist()
        kept = [Kept(sequence, start - 1, tokens[:KEPT], tokens[KEPT], {})]
        contexts = [DraftContext(sequence, NUM_DRAFT)]
        begin = time.perf_counter()
        speculator.commit(kept)
        drafts = speculator.propose(contexts)
        seconds[step] = time.perf_counter() - begin
        if step % (steps // 5) == 0:
            check_proposal(sequence.tokens, drafts[0].tokens)
    return HostRow.of("n-gram", f"history {length:,}, propose 8 + commit 3", seconds)


def check_proposal(history: list[int], proposed: list[int]) -> None:
    """Compare with a search for the newest place of the longest n-gram.

    Raises:
        WrongResultError: something else was proposed.
    """
    expected: list[int] = []
    ids = np.asarray(history)
    for order in range(min(8, len(ids) - 1), 1, -1):
        windows = np.lib.stride_tricks.sliding_window_view(ids[:-1], order)
        hits = np.flatnonzero((windows == ids[-order:]).all(axis=1))
        if len(hits):
            source = [*history]
            for place in range(int(hits[-1]) + order, int(hits[-1]) + order + NUM_DRAFT):
                source.append(source[place])
            expected = source[len(history) :]
            break
    if proposed != expected:
        raise WrongResultError(f"n-gram proposed {proposed}, expected {expected}")


def copied_text(length: int) -> np.ndarray:
    """Ids of which passages come again, [length] int32."""
    random = np.random.default_rng(1)
    base = random.integers(0, 49_152, max(length // 3, 100)).astype(np.int32)
    pieces, total = [], 0
    while total < length:
        start, size = random.integers(0, len(base) - 40), random.integers(5, 40)
        pieces.append(base[start : start + size])
        total += len(pieces[-1])
    return np.concatenate(pieces)[:length]


def governor(steps: int = STEPS) -> HostRow:
    """Ask for K and tell what came of it."""
    policy = Governor().policy()
    seconds = np.empty(steps)
    for step in range(steps):
        begin = time.perf_counter()
        num_draft = policy.num_draft(NUM_DRAFT)
        matched = num_draft // 2 if step % 7 == 0 else num_draft
        policy.observe(num_draft, matched, 1e-6, 0.01 + 0.001 * num_draft, 1e-6)
        seconds[step] = time.perf_counter() - begin
    return HostRow.of("governor", "num_draft + observe", seconds)


def sampler(case: SamplerCase, vocab_size: int, steps: int = 50) -> HostRow:
    """One draw from a row of logits behind a history of 10,000 ids."""
    row = np.random.default_rng(0).normal(0, 3, vocab_size).astype(np.float32)
    most = min(20_000, vocab_size)
    history = np.random.default_rng(1).integers(0, most, 10_000).astype(np.int32)
    params = SamplingParams(seed=1, **case.params)
    sampler = make_sampler(params, vocab_size)
    drawn = sampler.draw(row, history, 1000, len(history), False)
    expected = sample(row, history, 1000, params, 1, len(history))
    if drawn != expected:
        raise WrongResultError(f"{case.name}: drew {drawn}, the reference {expected}")

    def draw() -> None:
        sampler.draw(row, history, 1000, len(history), False)

    return HostRow.of("sampler", f"{case.name}, vocabulary {vocab_size:,}", _each(draw, steps))


def _each(call: Callable[[], None], steps: int) -> np.ndarray:
    seconds = np.empty(steps)
    for step in range(steps):
        begin = time.perf_counter()
        call()
        seconds[step] = time.perf_counter() - begin
    return seconds
