"""Host work of a step in microseconds: n-gram, governor, sampler, walk, and all of it together."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from time import perf_counter_ns
from typing import TypeVar

import numpy as np

from specrt.bench.arguments import add_json, positive
from specrt.bench.cases import DRAWS, HISTORIES, TEXTS, VOCABULARIES, text
from specrt.bench.lattice_walks import BLOCKS, walk_calls
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
from specrt.bench.step_overhead import STEP_CASES, StepCase, step_time
from specrt.bench.timing import Latency, WrongResultError, collector_off, machine
from specrt.options import SamplingParams
from specrt.reference.sampling import sample
from specrt.sampling import make_sampler
from specrt.speculative.algorithms.ngram import NgramSpeculator
from specrt.speculative.governor import Governor
from specrt.state.messages import Draft, DraftContext, Kept
from specrt.state.sequence import Cursor, Sequence

R = TypeVar("R")

KEPT_ROWS = 3
NUM_DRAFT = 8
CONTEXT = 1_100_000
BLOCK = 100
"""Steps between two rewinds, so that a history keeps its length."""


@dataclass(frozen=True, slots=True)
class HostTime:
    """One kind of work.

    Args:
        part: ngram, governor, sampler, walk, "step" without its program, "step draws" within that.
        case: over what.
        size: of the history or the vocabulary, or the rows of a block.
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
        WrongResultError: a proposal is not a plain search's, a draw not the reference's, or a walk
            not a plain one.
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
    bounds = ngram_bounds(times) + walk_bounds(times) + step_bounds(times)
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
    """All of it; what takes longest a tenth as often."""
    for kind in TEXTS:
        yield from ngram_steps(kind, calls)
    for most in (NUM_DRAFT, 64):
        yield governor_step(most, calls)
    for vocabulary in VOCABULARIES:
        for case in DRAWS:
            yield sampler_draw(case, vocabulary, max(1, calls // 10))
    for num_rows, k in BLOCKS:
        yield lattice_walk(num_rows, k, calls)
    for step in STEP_CASES:
        yield from step_times(step, max(1, calls // 10))


def ngram_steps(kind: str, calls: int) -> list[HostTime]:
    """Propose and commit through the Python calls, at every length of history in turn.

    A block of steps at a time, so that what slows the machine for a while slows all alike.

    Raises:
        WrongResultError: a proposal is not a plain search's.
    """
    blocks = -(-calls // BLOCK)
    steps = {length: ngram_calls(kind, length, blocks * BLOCK) for length in HISTORIES}
    seconds: dict[int, list[float]] = {length: [] for length in HISTORIES}
    drafted = dict.fromkeys(HISTORIES, 0)
    for _ in range(blocks):
        for length, waiting in steps.items():
            spent, drafts = _timed_each(islice(waiting, BLOCK))
            seconds[length] += spent
            drafted[length] += sum(len(draft.tokens) for (draft,) in drafts)
    return [
        HostTime("ngram", kind, n, Latency.of(all_), len(all_), drafted[n] / len(all_))
        for n, all_ in seconds.items()
    ]


def ngram_calls(kind: str, length: int, calls: int) -> Iterator[Callable[[], list[Draft]]]:
    """That many steps over fresh text, each to be called before the next is taken.

    Raises:
        WrongResultError: a proposal is not a plain search's; checked twice, before the first step.
    """
    speculator, sequence = NgramSpeculator(), Sequence(0, CONTEXT)
    contexts = [DraftContext(sequence, NUM_DRAFT)]
    ids = text(kind, length + (calls + 1) * KEPT_ROWS, length)
    sequence.history[:length] = ids[:length]
    sequence.cursor = Cursor(num_tokens=length)

    def step(kept: list[Kept]) -> list[Draft]:
        speculator.commit(kept)
        return speculator.propose(contexts)

    def next_kept(call: int) -> list[Kept]:
        at, first = length + call % BLOCK * KEPT_ROWS, length + call * KEPT_ROWS
        sequence.history[at : at + KEPT_ROWS] = ids[first : first + KEPT_ROWS]
        sequence.cursor = Cursor(num_tokens=at + KEPT_ROWS)
        tokens = sequence.history[at - 1 : at + KEPT_ROWS].tolist()
        return [Kept(sequence, at - 1, tokens[:-1], tokens[-1], {})]

    _check_proposal(kind, sequence, speculator.propose(contexts))
    _check_proposal(kind, sequence, step(next_kept(calls)))
    for call in range(calls):
        if call % BLOCK == 0:
            sequence.cursor = Cursor(num_tokens=length)
            speculator.reset(sequence)
        yield partial(step, next_kept(call))


def plain_search(ids: np.ndarray, num_draft: int) -> list[int]:
    """What followed the newest earlier place of the longest n-gram of 8 .. 2 ids at the end.

    Args:
        ids: [length] int32.
        num_draft: how many ids to copy.
    """
    for order in range(min(8, len(ids) - 1), 1, -1):
        starts = len(ids) - order
        same = np.ones(starts, bool)
        for k in range(order):
            same &= ids[k : k + len(same)] == ids[starts + k]
        if same.any():
            first = int(np.flatnonzero(same)[-1]) + order
            copied = ids[first : first + num_draft].tolist()
            while len(copied) < num_draft:  # past the end it goes on with what it copied
                copied.append(copied[len(copied) - (len(ids) - first)])
            return copied
    return []


def _check_proposal(kind: str, sequence: Sequence, drafts: list[Draft]) -> None:
    expected = plain_search(sequence.history[: sequence.cursor.num_tokens], NUM_DRAFT)
    if drafts[0].tokens != expected:
        raise WrongResultError(f"ngram {kind}: {drafts[0].tokens}, a plain search has {expected}")


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
    """All that a step asks and tells; nothing checks it, since no K changes a result."""
    seconds, _ = _timed_each(governor_calls(most, calls))
    return HostTime("governor", "a step", most, Latency.of(seconds), calls)


def governor_calls(most: int, calls: int) -> Iterator[Callable[[], None]]:
    """That many steps, whose drafts land whole, by half or not at all."""
    policy = Governor().policy()
    outcomes = np.random.default_rng(0).integers(0, 3, calls).tolist()

    def step(outcome: int) -> None:
        num_draft = policy.num_draft("ngram", most)
        if num_draft:
            policy.proposed("ngram", num_draft, 1e-6, [])
        policy.rows.add(num_draft, 0.01 + 0.001 * num_draft)
        policy.observe(num_draft, num_draft * outcome // 2)

    return (partial(step, outcome) for outcome in outcomes)


def sampler_draw(case: str, vocabulary: int, calls: int) -> HostTime:
    """Draws at following positions.

    Raises:
        WrongResultError: the first draw is not the reference's.
    """
    seconds, _ = _timed_each(sampler_calls(case, vocabulary, calls))
    return HostTime("sampler", case, vocabulary, Latency.of(seconds), calls)


def sampler_calls(case: str, vocabulary: int, calls: int) -> Iterator[Callable[[], int]]:
    """That many draws from one row of logits; history of 100,000 ids.

    Raises:
        WrongResultError: the first draw is not the reference's; checked here.
    """
    params = SamplingParams(**{"temperature": 0.8, "seed": 1} | DRAWS[case])  # type: ignore[arg-type]
    logits = np.random.default_rng(0).normal(0, 3, vocabulary).astype(np.float32)
    history = np.random.default_rng(1).integers(0, 20_000, 100_000).astype(np.int32)
    sampler = make_sampler(params, vocabulary)
    prompt_len, position = 1000, len(history)
    drawn = sampler.draw(logits, history, prompt_len, position, False)
    if drawn != sample(logits, history, prompt_len, params, 1, position):
        raise WrongResultError(f"sampler {case}: the draw differs from the reference's")
    return (
        partial(sampler.draw, logits, history, prompt_len, position + call, False)
        for call in range(calls)
    )


def lattice_walk(num_rows: int, k: int, calls: int) -> HostTime:
    """Walks of a block, through the Python call.

    Raises:
        WrongResultError: the first walk's ids are not those of a plain one.
    """
    seconds, _ = _timed_each(walk_calls(num_rows, k, calls))
    return HostTime("walk", f"{k} candidates", num_rows, Latency.of(seconds), calls)


def walk_bounds(times: Iterable[HostTime]) -> list[Bound]:
    """What a walk may cost."""
    return [
        Bound(f"walk, {one.size} rows, {one.case}: median us", one.microseconds.median, 5.0, True)
        for one in times
        if one.part == "walk"
    ]


def step_times(case: StepCase, calls: int) -> list[HostTime]:
    """A whole step without its program, and the draws over the vocabulary in that.

    Raises:
        WrongResultError: what was emitted is not what the program was to give.
    """
    time = step_time(case, calls)
    parts = {"step": time.overhead} | ({"step draws": time.draws} if case.sampled else {})
    return [
        HostTime(part, case.name, case.history, microseconds, time.num_steps)
        for part, microseconds in parts.items()
    ]


def step_bounds(times: Iterable[HostTime]) -> list[Bound]:
    """What a step may cost outside its program."""
    return [
        Bound(f"step, {one.case}, {one.size:,}: median us", one.microseconds.median, 40.0, True)
        for one in times
        if one.part == "step"
    ]


def _timed_each(calls: Iterator[Callable[[], R]]) -> tuple[list[float], list[R]]:
    """Seconds and result of each call."""
    seconds, results = [], []
    with collector_off():
        for call in calls:
            before = perf_counter_ns()
            result = call()
            seconds.append((perf_counter_ns() - before) * 1e-9)
            results.append(result)
    return seconds, results
