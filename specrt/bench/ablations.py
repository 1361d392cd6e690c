"""What the ways in which a hybrid model rolls back and drafts are worth, beside other ways."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace

from specrt.bench.ablation_results import (
    Result,
    bounds_of,
    measure,
    pending_seconds,
    results_of,
)
from specrt.bench.ablation_variants import Model, Variant, asked_for
from specrt.bench.arguments import add_answers, add_json, positive, share
from specrt.bench.prompts import prompts_for
from specrt.bench.report import (
    bound_rows,
    check_writable,
    collect,
    number,
    save,
    show,
    show_bounds,
)
from specrt.bench.timing import machine, model_file
from specrt.cli import flags
from specrt.drafters.draft_ids import read_draft_ids
from specrt.options import SamplingParams
from specrt.settings import (
    ABLATIONS,
    DRAFT_IDS,
    DRAFT_MODEL,
    MODEL,
    SPEC_DRAFT,
    SPEC_PMIN,
    spec_options,
)

TOKENS = 128


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The flags of this benchmark."""
    parser.description = (
        f"{parser.description} Each way gives the same tokens, or no time is told. Where flags or "
        "variables ask for some of the other ways, only those are measured, else all."
    )
    parser.add_argument("--model", metavar="FILE", help=flags.MODEL_HELP)
    flags.add_settings(parser, "model", MODEL)
    flags.add_settings(parser, "drafts", (SPEC_DRAFT, SPEC_PMIN, DRAFT_MODEL, DRAFT_IDS))
    told = ", ".join("/".join(setting.variables) for setting in ABLATIONS)
    flags.add_settings(parser, f"ways (variables: {told})", ABLATIONS)
    add_answers(parser)
    parser.add_argument(
        "--rounds", type=positive, default=5, metavar="N", help="of each prompt (default: 5)"
    )
    parser.add_argument(
        "--synthetic-acceptance",
        type=share,
        metavar="P",
        help="draft the true answer, each token wrong with probability 1 - P; the head works all "
        "the same",
    )
    add_json(parser)
    parser.set_defaults(tokens=TOKENS)


def run(args: argparse.Namespace) -> int:
    """Measure, print and save.

    Raises:
        WrongResultError: a way changed an answer.
        SpecrtError: a flag, the model or a prompt is impossible.
    """
    check_writable(args.json)
    asked = asked_for(vars(args))
    prompts = prompts_for(args.model, args.prompts)
    model = load_shared(args)
    variants = [Variant(model, one) for one in (None, *asked)]
    params = SamplingParams(max_tokens=args.tokens, ignore_eos=True)
    rounds, complete = collect(measure(model, variants, prompts, params, args.rounds))
    if not rounds:
        return 130
    results = results_of(variants, rounds)
    pending = pending_seconds(model, round(results[0].acceptance_length), args.rounds)
    bounds = bounds_of(variants, rounds, pending)
    show_results(results)
    show_bounds(bounds)
    content = {
        "bench": "ablations",
        "complete": complete,
        "machine": machine(args.threads),
        "model": model_file(model.llm.path),
        "settings": {
            "tokens": args.tokens,
            "rounds": len(rounds),
            "prompts": [prompt.id for prompt in prompts],
            "num_draft": model.num_draft,
            "pmin": model.spec.pmin,
            "synthetic_acceptance": args.synthetic_acceptance,
            "kv_type": model.llm.target.kv_type,
            "device": model.ops.device,
        },
        "results": results,
        "pending_rows_ms": None if pending is None else pending * 1e3,
        "bounds": bound_rows(bounds),
    }
    save(args.json, content)
    return 0 if complete else 130


def load_shared(args: argparse.Namespace) -> Model:
    """The weights, and how far is drafted.

    Raises:
        SpecrtError: a flag or a file is impossible.
    """
    given = {name: getattr(args, name) for name in (SPEC_DRAFT.name, SPEC_PMIN.name)}
    spec = replace(spec_options(given), type="none")
    llm = flags.load_model(args, spec=spec, max_sequences=1, verbose=False)
    file = DRAFT_IDS.from_environment() if args.draft_ids is None else args.draft_ids
    ids = None if file is None else read_draft_ids(file, llm.target.vocab_size)
    return Model(llm, spec, ids, args.synthetic_acceptance)


PHASES = ("draft", "catch-up", "forward", "rollback")


def show_results(results: Sequence[Result]) -> None:
    """A line for each way."""
    default = results[0]
    show(
        f"{default.tokens} tokens in {default.steps} steps, {default.corrected} of which took rows "
        "back: ms of a step, and what the default (log, folded, programs) saves of each other way",
        ("way", "step", *PHASES, "saves (least..most)", "% of a step", "of 256 tokens", "tok/s",
         "published elsewhere"),
        [_row(result) for result in results],
    )  # fmt: skip


def _row(result: Result) -> tuple[str, ...]:
    phases = [number(result.phases_ms[name], 3) for name in PHASES]
    if (worth := result.worth) is None:
        saves = ("", "", "", number(result.tokens_per_second, 1))
    else:
        saves = (
            f"{worth.ms.median:.3f} ({worth.ms.low:.3f}..{worth.ms.high:.3f})",
            number(100 * worth.share.median, 1),
            number(worth.ms_of_256_tokens, 1),
            f"x {worth.ratio.median:.3f}",
        )
    return (result.name, number(result.step_ms.median, 3), *phases, *saves, result.published)
