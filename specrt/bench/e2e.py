"""End to end: the prompts' answers, plain and speculative."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

from specrt.bench import sweep
from specrt.bench.arguments import (
    add_answers,
    add_json,
    add_model,
    load_model,
    positive,
    positives,
    share,
)
from specrt.bench.costs import launches_per_step, row_seconds, warm_up
from specrt.bench.pairs import Pair, pairs
from specrt.bench.prediction import RowCosts, predictions, show_predictions
from specrt.bench.prediction import bounds_of as prediction_bounds
from specrt.bench.prompts import Prompt, prompts_for
from specrt.bench.report import Bound, bound_rows, check_writable, collect, save, show_bounds
from specrt.bench.scripted import SyntheticSpeculator
from specrt.bench.summary import show_results, summarise, totals
from specrt.bench.timing import machine, model_file, peak_memory
from specrt.cli import flags
from specrt.errors import OptionError
from specrt.generate import INHERIT
from specrt.llm import LLM
from specrt.options import MAX_DRAFT, SamplingParams
from specrt.settings import GRAPH_BUDGET
from specrt.speculative.registry import SpeculatorFactory, default_registry

ROW_ROUNDS = 5


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
    parser.add_argument(
        "--synthetic-acceptance",
        type=share,
        metavar="P",
        help="draft the true answer, each token wrong with probability 1 - P",
    )
    told = ",".join(map(str, sweep.NUM_DRAFTS))
    parser.add_argument(
        "--sweep",
        type=positives,
        nargs="?",
        const=list(sweep.NUM_DRAFTS),
        metavar="K[,K]",
        help=f"each K fixed, without the governor, in place of what it chooses ({told})",
    )
    parser.set_defaults(tokens=256)


def run(args: argparse.Namespace) -> int:
    """Measure, print and save.

    Returns:
        1 if a step of a GPU takes more launches than it may.

    Raises:
        WrongResultError: speculation changed an answer.
        SpecrtError: a flag, the model or a prompt is impossible.
    """
    check_writable(args.json)
    check_flags(args)
    prompts = prompts_for(args.model, args.prompts)
    llm, synthetic = load(args)
    params = SamplingParams(max_tokens=args.tokens, ignore_eos=args.ignore_eos)
    if args.sweep is not None:
        return run_sweep(args, llm, prompts, params, synthetic)
    found, complete = collect(measure(llm, prompts, params, args.pairs, args.turns, synthetic))
    bounds = tell(args, llm, found, complete)
    if not complete:
        return 130
    return 0 if all(bound.holds for bound in bounds) else 1


def tell(
    args: argparse.Namespace, llm: LLM, found: list[Pair | RowCosts], complete: bool
) -> list[Bound]:
    """Print and save what was measured, if anything was; the bounds that do not time anything."""
    measured = [one for one in found if isinstance(one, Pair)]
    if not measured:
        return []
    results, whole = summarise(measured), totals(measured)
    predicted = predictions(found)
    show_results(results, whole)
    show_predictions(predicted)
    for line in dict.fromkeys(line for result in results for line in result.declined):
        print(f"declined: {line}")
    launches, bounds = launches_per_step(llm), []
    if launches is not None:
        print(f"launches per plain greedy step {launches:g}")
        bounds = bounds_of(llm, args.graph_budget, launches)
    if told := bounds + prediction_bounds(predicted):
        show_bounds(told)
    print(f"peak memory {peak_memory() / 2**20:.0f} MiB")
    content = {
        "launches_per_step": launches,
        "bounds": bound_rows(told),
        "predictions": predicted,
        "results": results,
        "totals": whole,
    }
    save(args.json, _described(args, llm, complete) | content)
    return bounds


def run_sweep(
    args: argparse.Namespace,
    llm: LLM,
    prompts: list[Prompt],
    params: SamplingParams,
    synthetic: SyntheticSpeculator | None,
) -> int:
    """Measure each K, print and save."""
    measured, complete = collect(
        sweep.measure(llm, prompts, params, args.pairs, args.turns, args.sweep, synthetic)
    )
    if measured:
        found = sweep.swept(measured)
        sweep.show_swept(found)
        save(args.json, _described(args, llm, complete) | {"sweep": found})
    return 0 if complete else 130


def check_flags(args: argparse.Namespace) -> None:
    """Check what flags say together.

    Raises:
        OptionError: one of them would not be heeded.
    """
    if args.sweep is not None:
        if max(args.sweep) > MAX_DRAFT:
            raise OptionError(f"--sweep {max(args.sweep)}: expected at most {MAX_DRAFT}")
        if args.num_draft is not None:
            raise OptionError("--sweep fixes K itself: leave --spec-draft out")
    if args.synthetic_acceptance is not None:
        if args.type is not None or args.spec is not None:
            raise OptionError(
                "--synthetic-acceptance names who drafts: leave --spec-type and --spec out"
            )
        if args.turns > 1:
            raise OptionError(
                "--synthetic-acceptance knows one answer to a prompt: leave --turns out"
            )


def load(args: argparse.Namespace) -> tuple[LLM, SyntheticSpeculator | None]:
    """The model, and who drafts for it if that is synthetic."""
    if args.synthetic_acceptance is None:
        return load_model(args), None
    synthetic = SyntheticSpeculator(args.synthetic_acceptance)
    registry = default_registry()
    registry.register(SpeculatorFactory(synthetic.name, False, lambda *_: synthetic))
    spec = replace(flags.spec_from(args), type=synthetic.name)
    return load_model(args, registry, spec), synthetic


def _described(args: argparse.Namespace, llm: LLM, complete: bool) -> dict[str, Any]:
    return {
        "bench": "e2e",
        "complete": complete,
        "machine": machine(args.threads),
        "model": model_file(llm.path),
        "settings": {
            "tokens": args.tokens,
            "pairs": args.pairs,
            "turns": args.turns,
            "ignore_eos": args.ignore_eos,
            "synthetic_acceptance": args.synthetic_acceptance,
            "context": llm.context,
            "kv_type": llm.target.kv_type,
            "device": llm.target.ops.device,
            "spec": asdict(llm.generator.spec),
        },
        "peak_memory_bytes": peak_memory(),
    }


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
    llm: LLM,
    prompts: list[Prompt],
    params: SamplingParams,
    rounds: int,
    turns: int = 1,
    synthetic: SyntheticSpeculator | None = None,
) -> Iterator[Pair | RowCosts]:
    """Pair after pair, and behind each what rows cost then.

    First all programs are recorded, and the weights are in memory.
    """
    most_rows = llm.speculation.resolve(llm.generator.spec).num_draft + 1
    warm_up(llm, most_rows)
    for prompt in prompts:
        if synthetic is not None:
            sweep.learn(synthetic, llm, prompt, params)
        for pair in pairs(llm, prompt, params, INHERIT, rounds, turns):
            yield pair
            answer = pair.spec.completion
            middle = len(answer.prompt_token_ids) + len(answer.token_ids) // 2
            yield RowCosts(row_seconds(llm, most_rows, middle, ROW_ROUNDS))
