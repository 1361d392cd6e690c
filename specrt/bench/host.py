"""Host work of a step in microseconds: n-gram, governor, sampler."""

from __future__ import annotations

import argparse
import gc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from time import perf_counter_ns

import numpy as np

from specrt.bench.arguments import add_json, positive
from specrt.bench.cases import DRAWS, HISTORIES, TEXTS, VOCABULARIES, text
from specrt.bench.report import (
    Bound,
    bound_rows,
    check_writable,
    collect,
    number,
    save,
    show,
    show_bounds,
)
from specrt.bench.timing import Latency, WrongResultError, machine
from specrt.options import SamplingParams
from specrt.reference.sampling import sample
from specrt.sampling import make_sampler
from specrt.speculative.algorithms.ngram import NgramSpeculator
from specrt.speculative.governor import Governor
from specrt.state.messages import DraftContext, Kept
from specrt.state.sequence import Cursor, Sequence

KEPT_ROWS = 3
NUM_DRAFT = 8
CONTEXT = 1_100_000
BLOCK = 100
"""Steps between two rewinds, so that a history keeps its length."""


@dataclass(frozen=True, slots=True)
class HostTime:
    """One kind of work.

    Args:
        part: ngram, governor or sampler.
        case: over what.
        size: of the history or the vocabulary.
        microseconds: of a step or a draw.
        drafted: mean ids of a proposal, None for what proposes nothing.
    """

    part: str
    case: str
    size: int
    microseconds: Latency
    calls: int
    drafted: float | None = None


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The flags of this benchmark."""
    add_json(parser)
    parser.add_argument("--calls", type=positive, default=20_000, metavar="N", help="of each kind")


def run(args: argparse.Namespace) -> int:
    """Measure, print and save.

    Raises:
        WrongResultError: a draw is not the reference's.
    """
    check_writable(args.json)
    times, complete = collect(measure(args.calls))
    show(
        f"Microseconds; n-gram: propose {NUM_DRAFT} and commit {KEPT_ROWS} rows",
        ("part", "case", "size", "median", "p99.9", "mean draft"),
        [
            (
                one.part,
                one.case,
                f"{one.size:,}",
                number(one.microseconds.median),
                number(one.microseconds.p999),
                number(one.drafted, 1),
            )
            for one in times
        ],
        num_texts=2,
    )
    bounds = ngram_bounds(times)
    show_bounds(bounds)
    content = {
        "bench": "host",
        "complete": complete,
        "machine": machine(threads=1),
        "settings": {"calls": args.calls, "num_draft": NUM_DRAFT, "kept_rows": KEPT_ROWS},
        "results": times,
        "bounds": bound_rows(bounds),
    }
    save(args.json, content)
    return 0 if complete else 130


def measure(calls: int) -> Iterator[HostTime]:
    """All of it; the sampler, whose calls take longest, a tenth as often."""
    for kind in TEXTS:
        yield from ngram_steps(kind, calls)
    for most in (NUM_DRAFT, 64):
        yield governor_step(most, calls)
    for vocabulary in VOCABULARIES:
        for case in DRAWS:
            yield sampler_draw(case, vocabulary, max(1, calls // 10))


def ngram_steps(kind: str, calls: int) -> list[HostTime]:
    """Propose and commit through the Python calls, at every length of history in turn.

    A block of steps at a time, so that what slows the machine for a while slows all alike.
    """
    blocks = -(-calls // BLOCK)
    seconds: dict[int, list[float]] = {length: [] for length in HISTORIES}
    drafted = dict.fromkeys(HISTORIES, 0)
    steps = {length: ngram_blocks(kind, length, blocks) for length in HISTORIES}
    for _ in range(blocks):
        for length, measured in steps.items():
            spent, proposed = next(measured)
            seconds[length] += spent
            drafted[length] += proposed
    return [
        HostTime("ngram", kind, n, Latency.of(all_), len(all_), drafted[n] / len(all_))
        for n, all_ in seconds.items()
    ]


def ngram_blocks(kind: str, length: int, blocks: int) -> Iterator[tuple[list[float], int]]:
    """Seconds of each step of a block, and the ids proposed in it; each block sees fresh text."""
    speculator, sequence = NgramSpeculator(), Sequence(0, CONTEXT)
    ids = text(kind, length + blocks * BLOCK * KEPT_ROWS + 1)
    sequence.history[:length] = ids[:length]
    sequence.cursor = Cursor(num_tokens=length)
    context = DraftContext(sequence, NUM_DRAFT)
    speculator.propose([context])
    for block in range(blocks):
        start = length + block * BLOCK * KEPT_ROWS
        end = length + BLOCK * KEPT_ROWS
        sequence.history[length:end] = ids[start : start + BLOCK * KEPT_ROWS]
        seconds, drafted = [], 0
        with _collector_off():
            for at in range(length, end, KEPT_ROWS):
                tokens = sequence.history[at - 1 : at + KEPT_ROWS].tolist()
                kept = [Kept(sequence, at - 1, tokens[:-1], tokens[-1], {})]
                sequence.cursor = Cursor(num_tokens=at + KEPT_ROWS)
                before = perf_counter_ns()
                speculator.commit(kept)
                drafts = speculator.propose([context])
                seconds.append((perf_counter_ns() - before) * 1e-9)
                drafted += len(drafts[0].tokens)
        sequence.cursor = Cursor(num_tokens=length)
        speculator.reset(sequence)
        yield seconds, drafted


def ngram_bounds(times: Iterable[HostTime]) -> list[Bound]:
    """What the n-gram index has to hold, for the kinds of text that were measured whole."""
    bounds: list[Bound] = []
    by_kind: dict[str, dict[int, Latency]] = {}
    for one in times:
        if one.part == "ngram":
            by_kind.setdefault(one.case, {})[one.size] = one.microseconds
    for kind, latency in by_kind.items():
        if set(latency) == set(HISTORIES):
            short, middle, long = (latency[size] for size in HISTORIES)
            growth = long.median / short.median
            worst = max(one.p999 for one in latency.values())
            bounds += [
                Bound(f"{kind}: median us at {HISTORIES[1]:,}", middle.median, 2.0, True),
                Bound(f"{kind}: median at {HISTORIES[2]:,} / {HISTORIES[0]:,}", growth, 1.5, True),
                Bound(f"{kind}: p99.9 us, worst history", worst, 20.0, True),
            ]
    return bounds


def governor_step(most: int, calls: int) -> HostTime:
    """All that a step asks and tells, over drafts that land whole, by half or not at all."""
    policy = Governor().policy()
    outcomes = np.random.default_rng(0).integers(0, 3, calls).tolist()

    def step(outcome: int) -> None:
        num_draft = policy.num_draft("ngram", most)
        if num_draft:
            policy.proposed("ngram", num_draft, 1e-6)
        policy.rows.add(num_draft, 0.01 + 0.001 * num_draft)
        policy.observe(num_draft, num_draft * outcome // 2)

    seconds = _timed_each(partial(step, outcome) for outcome in outcomes)
    return HostTime("governor", "a step", most, Latency.of(seconds), calls)


def sampler_draw(case: str, vocabulary: int, calls: int) -> HostTime:
    """Draws at following positions from one row of logits; history of 100,000 ids.

    Raises:
        WrongResultError: the first draw is not the reference's.
    """
    params = SamplingParams(**{"temperature": 0.8, "seed": 1} | DRAWS[case])  # type: ignore[arg-type]
    logits = np.random.default_rng(0).normal(0, 3, vocabulary).astype(np.float32)
    history = np.random.default_rng(1).integers(0, 20_000, 100_000).astype(np.int32)
    sampler = make_sampler(params, vocabulary)
    prompt_len, position = 1000, len(history)
    drawn = sampler.draw(logits, history, prompt_len, position, False)
    if drawn != sample(logits, history, prompt_len, params, 1, position):
        raise WrongResultError(f"sampler {case}: the draw differs from the reference's")
    seconds = _timed_each(
        partial(sampler.draw, logits, history, prompt_len, position + number, False)
        for number in range(calls)
    )
    return HostTime("sampler", case, vocabulary, Latency.of(seconds), calls)


def _timed_each(calls: Iterator[Callable[[], object]]) -> list[float]:
    """Seconds of each call."""
    seconds = []
    with _collector_off():
        for call in calls:
            before = perf_counter_ns()
            call()
            seconds.append((perf_counter_ns() - before) * 1e-9)
    return seconds


@contextmanager
def _collector_off() -> Iterator[None]:
    """As timeit has it: a collection is not the work of the step that it falls into."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
