"""Measure specrt and its peers on the same prompts in one run."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

from benchmarks.peers.cases import Case, Cases
from benchmarks.peers.contestants import OWN, PEERS, Choice, make_engines
from benchmarks.peers.engine import Engine, PeerError
from benchmarks.peers.measure import Plan, Sample, measure
from benchmarks.peers.ratios import Bars, bounds_of, compare, verdicts
from benchmarks.peers.summary import comparable, lossless, rates, summarise
from benchmarks.peers.tables import show_comparisons, show_engines, show_results
from specrt.bench.arguments import add_answers, add_json, names, positive, positive_number
from specrt.bench.prompts import prompts_for
from specrt.bench.report import Bound, check_writable, save, show_bounds
from specrt.bench.timing import machine, model_file
from specrt.cli import flags
from specrt.host.machine import choose_threads
from specrt.llm import find_model
from specrt.settings import CONTEXT, THREADS

FIRST = next(iter(PEERS))
PROBES, PROBE_TOKENS = 4, 48
"""By which llama.cpp's flash attention is chosen; the first warms up."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The flags of this command."""
    parser.add_argument("--model", metavar="FILE", help=flags.MODEL_HELP)
    flags.add_settings(parser, "model", (CONTEXT, THREADS))
    flags.add_speculation(parser)
    add_answers(parser)
    add_json(parser)
    parser.add_argument("--rounds", type=positive, default=3, metavar="N", help="over all prompts")
    parser.add_argument("--ignore-eos", action="store_true", help="go on past end tokens")
    parser.add_argument(
        "--prefill", type=positive, default=512, metavar="N", help="ids of a prompt to prefill"
    )
    parser.add_argument(
        "--engines", type=names, default=[FIRST], metavar="NAME[,NAME]",
        help=f"beside {OWN}: some of {', '.join(PEERS)} (default: {FIRST})",
    )  # fmt: skip
    parser.add_argument("--llama-server", type=Path, metavar="FILE", help="in place of our build")
    parser.add_argument(
        "--llama-type", type=_llama_type, action="append", default=[], metavar="TYPE FLAGS",
        help="a further --spec-type of llama-server with flags of its own; repeatable",
    )  # fmt: skip
    parser.add_argument(
        "--start-seconds", type=positive_number, default=120.0, metavar="S", help="to come up in"
    )
    _add_bars(parser)
    parser.set_defaults(tokens=128)


def _llama_type(text: str) -> str:
    """In one spelling, so that equal ones are one."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from error
    if not words:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a type, perhaps with flags behind it")
    return shlex.join(words)


def _add_bars(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("bars", "against the first of --engines; missed: status 1")
    for name, text in (
        ("decode", "least mean ratio of plain decoding"),
        ("prefill", "least ratio of prefill"),
        ("spec", "least mean ratio of speculation over the category's prompts"),
        ("spec-least", "least ratio of speculation on each of them"),
    ):
        group.add_argument(f"--bar-{name}", type=positive_number, metavar="X", help=text)
    group.add_argument("--bar-category", default="edit", metavar="NAME", help="default: edit")
    group.add_argument(
        "--bar-spread", action="store_true", help="a run-to-run spread no worse than the peer's"
    )


def run(args: argparse.Namespace) -> int:
    """Measure, print and save.

    Returns:
        1 if a bar is missed.

    Raises:
        SpecrtError: a flag, the model, a prompt or an engine is impossible.
        WrongResultError: our answers to a prompt differ; nothing is told.
        PeerError: an engine failed; what was measured is told first.
        KeyboardInterrupt: likewise.
    """
    check_writable(args.json)
    path = Path(find_model(args.model))
    cases = Cases(path)
    prompts = prompts_for(path, args.prompts)
    asked = [cases.of(prompt, args.tokens, args.ignore_eos) for prompt in prompts]
    bars = Bars(**{name: getattr(args, f"bar_{name}") for name in Bars.__dataclass_fields__})
    bars.check_plan([prompt.category for prompt in prompts], args.rounds)
    probes = [cases.random((2, i), args.prefill, PROBE_TOKENS) for i in range(PROBES)]
    choice = Choice(
        model=path,
        context=args.context or cases.context([case.job for case in asked] + probes),
        threads=choose_threads(args.threads),
        spec=flags.spec_from(args),
        llama_server=args.llama_server,
        llama_types=args.llama_type,
        start_seconds=args.start_seconds,
    )
    engines = make_engines(args.engines, choice, probes, _say)
    bars.check_peer(engines[1])
    plan = Plan(args.rounds, args.prefill, _say)
    samples, failure = _collect(engines, cases, asked, plan)
    complete = failure is None
    bounds = _report(args, choice, bars, engines, asked, samples, complete) if samples else []
    if failure is not None:
        raise failure
    return 0 if all(bound.holds for bound in bounds) else 1


def _collect(
    engines: Sequence[Engine], cases: Cases, asked: Sequence[Case], plan: Plan
) -> tuple[list[Sample], PeerError | KeyboardInterrupt | None]:
    """What can be told, and what ended the run early."""
    samples: list[Sample] = []
    try:
        with closing(measure(engines, cases, asked, plan)) as measured:
            for sample in lossless(measured, OWN):
                samples.append(sample)
    except (PeerError, KeyboardInterrupt) as error:
        return comparable(samples, OWN), error
    return samples, None


def _report(
    args: argparse.Namespace,
    choice: Choice,
    bars: Bars,
    engines: Sequence[Engine],
    asked: Sequence[Case],
    samples: Sequence[Sample],
    complete: bool,
) -> list[Bound]:
    """Print and save what was measured, and give the bars' verdicts."""
    results, speeds = summarise(samples, OWN), rates(samples)
    categories = {case.prompt.id: case.prompt.category for case in asked}
    found = [compare(speeds, OWN, engine.name) for engine in engines[1:]]
    bounds = bounds_of(found[0], categories, bars)
    show_results(results, OWN)
    show_engines(results, speeds)
    show_comparisons(found, categories, OWN)
    if bounds:
        show_bounds(bounds)
    content = {
        "bench": "peers",
        "complete": complete,
        "machine": machine(choice.threads),
        "model": model_file(choice.model),
        "settings": {
            "tokens": args.tokens,
            "rounds": args.rounds,
            "prefill": args.prefill,
            "ignore_eos": args.ignore_eos,
            "context": choice.context,
            "spec": asdict(choice.spec),
        },
        "engines": {engine.name: engine.about() for engine in engines},
        "results": results,
        "comparisons": found,
        "bounds": verdicts(bounds),
    }
    save(args.json, content)
    return bounds


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
