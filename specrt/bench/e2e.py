"""End to end: the prompts' answers, plain and speculative."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict

from specrt.bench.arguments import add_answers, add_json, add_model, load_model, positive
from specrt.bench.costs import launches_per_step, row_seconds
from specrt.bench.pairs import Pair, pairs
from specrt.bench.prompts import Prompt, load_prompts
from specrt.bench.report import Bound, bound_rows, check_writable, collect, save, show_bounds
from specrt.bench.summary import show_results, summarise, totals
from specrt.bench.timing import machine, model_file, peak_memory
from specrt.cli import flags
from specrt.generate import INHERIT
from specrt.llm import LLM
from specrt.options import SamplingParams
from specrt.settings import GRAPH_BUDGET

WARM_TOKENS = 1023  # a prefill of every chunk size from 512 down to 1


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The flags of this benchmark."""
    add_model(parser)
    flags.add_speculation(parser)
    add_answers(parser)
    add_json(parser)
    parser.add_argument("--pairs", type=positive, default=4, metavar="N", help="of each prompt")
    parser.add_argument(
        "--turns", type=positive, default=1, metavar="N", help="of a session; 2 and later are told"
    )
    parser.add_argument("--ignore-eos", action="store_true", help="go on past end tokens")
    parser.set_defaults(tokens=256)


def run(args: argparse.Namespace) -> int:
    """Measure, print and save.

    Returns:
        1 if a bound is missed.

    Raises:
        WrongResultError: speculation changed an answer.
        SpecrtError: a flag, the model or a prompt is impossible.
    """
    check_writable(args.json)
    prompts = load_prompts(args.prompts)
    llm = load_model(args)
    params = SamplingParams(max_tokens=args.tokens, ignore_eos=args.ignore_eos)
    measured, complete = collect(measure(llm, prompts, params, args.pairs, args.turns))
    bounds: list[Bound] = []
    if measured:
        results, whole = summarise(measured), totals(measured)
        show_results(results, whole)
        for line in dict.fromkeys(line for result in results for line in result.declined):
            print(f"declined: {line}")
        launches = launches_per_step(llm)
        if launches is not None:
            print(f"launches per plain greedy step {launches:g}")
            bounds = bounds_of(llm, args.graph_budget, launches)
        if bounds:
            show_bounds(bounds)
        print(f"peak memory {peak_memory() / 2**20:.0f} MiB")
        content = {
            "bench": "e2e",
            "complete": complete,
            "machine": machine(args.threads),
            "model": model_file(llm.path),
            "settings": {
                "tokens": args.tokens,
                "pairs": args.pairs,
                "turns": args.turns,
                "ignore_eos": args.ignore_eos,
                "context": llm.context,
                "kv_type": llm.target.kv_type,
                "device": llm.target.ops.device,
                "spec": asdict(llm.generator.spec),
            },
            "launches_per_step": launches,
            "bounds": bound_rows(bounds),
            "peak_memory_bytes": peak_memory(),
            "results": results,
            "totals": whole,
        }
        save(args.json, content)
    if not complete:
        return 130
    return 0 if all(bound.holds for bound in bounds) else 1


def bounds_of(llm: LLM, graph_budget: int | None, launches: float) -> list[Bound]:
    """A greedy step is one graph where there are graphs.

    Args:
        graph_budget: as given; None for the environment's, else the default.
        launches: of a step.
    """
    budget = GRAPH_BUDGET.from_environment() if graph_budget is None else graph_budget
    if llm.target.ops.device != "cuda" or budget == 0:
        return []
    return [Bound("launches per plain greedy step", launches, 1, at_most=True)]


def measure(
    llm: LLM, prompts: list[Prompt], params: SamplingParams, rounds: int, turns: int = 1
) -> Iterator[Pair]:
    """Pair after pair, once all programs are recorded and the weights are in memory."""
    resolved = llm.speculation.resolve(llm.generator.spec)
    with closing(llm.session()):  # so that the pages of both sequences get touched
        row_seconds(llm, resolved.num_draft + 1, WARM_TOKENS, rounds=1)
    row_seconds(llm, resolved.num_draft + 1, WARM_TOKENS, rounds=1)
    for prompt in prompts:
        yield from pairs(llm, prompt, params, INHERIT, rounds, turns)
