"""How steady plain decoding is: tokens a second from run to run, and single steps."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from specrt.bench.arguments import add_json, add_model, load_model, positive
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
from specrt.bench.timing import WrongResultError, machine, model_file
from specrt.errors import ContextError, OptionError
from specrt.llm import LLM
from specrt.options import SamplingParams, SpecOptions

RUN_STEPS = 200
PROMPT_TOKENS = 128
WARM_STEPS = 2
"""Of each run, after its prefill; they do not count."""
TAIL = 3.0
"""Medians that all steps but one in a thousand may take."""

SPIN = """
import os, sys
parent = int(sys.argv[1])
while os.getppid() == parent:  # it must not outlive who asked for it
    for _ in range(100_000):
        pass
"""


@dataclass(frozen=True, slots=True)
class Run:
    """Steps behind one prompt, the same in every run.

    Args:
        ids: that they emitted.
        milliseconds: of each step.
    """

    ids: list[int]
    milliseconds: list[float]

    @property
    def tokens_per_second(self) -> float:
        """Of all its steps."""
        return 1e3 * len(self.milliseconds) / sum(self.milliseconds)


@dataclass(frozen=True, slots=True)
class Steadiness:
    """All runs together.

    Args:
        tokens_per_second: of each run.
        run_spread: interquartile range over median of them.
        median_ms: of single steps; so are the other milliseconds.
    """

    tokens_per_second: list[float]
    run_spread: float
    steps: int
    median_ms: float
    p99_ms: float
    p999_ms: float
    max_ms: float


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The flags of this benchmark."""
    add_model(parser)
    add_json(parser)
    parser.add_argument(
        "--steps", type=positive, default=2000, metavar="N", help="in all, at least (default: 2000)"
    )
    text = f"of a run; its prompt has {PROMPT_TOKENS} tokens (default: {RUN_STEPS})"
    parser.add_argument("--run-steps", type=positive, default=RUN_STEPS, metavar="N", help=text)
    parser.add_argument(
        "--beside", action="store_true", help="while another process keeps a core busy"
    )


def run(args: argparse.Namespace) -> int:
    """Measure, print and save.

    Raises:
        WrongResultError: a run emitted other ids than the first.
        SpecrtError: a flag or the model is impossible.
    """
    check_writable(args.json)
    if args.steps < args.run_steps:
        raise OptionError(f"--steps {args.steps}: expected at least --run-steps {args.run_steps}")
    llm = load_model(args, spec=SpecOptions(type="none"))
    check_room(llm, args.run_steps)
    with busy_process(args.beside):
        runs, complete = collect(measure(llm, -(-args.steps // args.run_steps), args.run_steps))
    beside = "beside a busy process" if args.beside else "alone"
    found = steadiness(runs) if runs else None
    if found is not None:
        show_steadiness(found, beside)
    bounds = [] if found is None else bounds_of(found, beside)
    show_bounds(bounds)
    content = {
        "bench": "spread",
        "complete": complete,
        "machine": machine(args.threads),
        "model": model_file(llm.path),
        "settings": {
            "run_steps": args.run_steps,
            "prompt_tokens": PROMPT_TOKENS,
            "beside": args.beside,
            "kv_type": llm.target.kv_type,
            "device": llm.target.ops.device,
        },
        "result": found,
        "bounds": bound_rows(bounds),
    }
    save(args.json, content)
    return 0 if complete else 130


def check_room(llm: LLM, run_steps: int) -> None:
    """Check that a run fits.

    Raises:
        ContextError: it does not.
    """
    needed = PROMPT_TOKENS + WARM_STEPS + run_steps
    if needed > llm.context:
        raise ContextError(
            f"context = {llm.context}: a run takes {needed} positions; pass fewer --run-steps, or "
            "a larger --context"
        )


def measure(llm: LLM, runs: int, run_steps: int) -> Iterator[Run]:
    """Run after run, once everything is recorded.

    Raises:
        WrongResultError: one emitted other ids than the first.
    """
    first = decode(llm, run_steps)
    for _ in range(runs):
        one = decode(llm, run_steps)
        if one.ids != first.ids:
            raise WrongResultError("a run emitted other ids than the one before it")
        yield one


def decode(llm: LLM, run_steps: int) -> Run:
    """Prefill and so many timed steps of a sequence of its own."""
    ids = np.random.default_rng(0).integers(0, llm.target.vocab_size, PROMPT_TOKENS).tolist()
    params = SamplingParams(max_tokens=WARM_STEPS + run_steps, ignore_eos=True)
    runtime, sequence = llm.generator.runtime, llm.target.open_sequence()
    try:
        request = llm.generator.request(sequence, ids, params, "none")
        runtime.prefill(request)
        for _ in range(WARM_STEPS):
            runtime.step([request])
        clock = [time.perf_counter()]
        for _ in range(run_steps):
            runtime.step([request])
            clock.append(time.perf_counter())
        return Run(sequence.tokens, (np.diff(clock) * 1e3).tolist())
    finally:
        llm.target.close_sequence(sequence)


@contextmanager
def busy_process(wanted: bool) -> Iterator[None]:
    """Beside the block runs a process that does nothing but work, if it is wanted."""
    if not wanted:
        yield
        return
    command = [sys.executable, "-c", SPIN, str(os.getpid())]
    process = subprocess.Popen(command, start_new_session=True)  # a Ctrl-C is not meant for it
    try:
        yield
        if process.poll() is not None:
            raise WrongResultError("the busy process ended before the steps did")
    finally:
        process.kill()
        process.wait()


def steadiness(runs: Sequence[Run]) -> Steadiness:
    """Of at least one run."""
    speeds = [run.tokens_per_second for run in runs]
    low, middle, high = np.quantile(speeds, [0.25, 0.5, 0.75])
    steps = np.concatenate([run.milliseconds for run in runs])
    median, p99, p999 = np.quantile(steps, [0.5, 0.99, 0.999])
    return Steadiness(
        tokens_per_second=speeds,
        run_spread=float((high - low) / middle),
        steps=len(steps),
        median_ms=float(median),
        p99_ms=float(p99),
        p999_ms=float(p999),
        max_ms=float(steps.max()),
    )


def bounds_of(found: Steadiness, beside: str) -> list[Bound]:
    """The tail of single steps."""
    name = f"{beside}: p99.9 of {found.steps} steps, in medians"
    return [Bound(name, found.p999_ms / found.median_ms, TAIL, at_most=True)]


def show_steadiness(found: Steadiness, beside: str) -> None:
    """Runs, then single steps."""
    show(
        f"Plain decoding {beside}: {len(found.tokens_per_second)} equal runs",
        ("what", "median", "p99", "p99.9", "most", "interquartile / median"),
        [
            (
                "tok/s of a run",
                number(float(np.median(found.tokens_per_second)), 1),
                "",
                "",
                number(max(found.tokens_per_second), 1),
                number(found.run_spread, 4),
            ),
            (
                "ms of a step",
                number(found.median_ms, 3),
                number(found.p99_ms, 3),
                number(found.p999_ms, 3),
                number(found.max_ms, 3),
                "",
            ),
        ],
    )
