"""Side by side: plain decoding, n-grams, draft heads and both, by category and draft length."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from specrt.assets import embedded_drafter, embedded_model
from specrt.bench.arguments import add_answers, add_json, add_model, names, positive, positives
from specrt.bench.contestants import Contestant, contestants_of, drafters_of, enter
from specrt.bench.costs import warm_up
from specrt.bench.pairs import TURN, conversations
from specrt.bench.prompts import Prompt, prompts_for
from specrt.bench.report import check_writable, collect, save
from specrt.bench.standings import Measured, Result, markdown, results_of, show_standings
from specrt.bench.standings_picture import draw
from specrt.bench.timing import WrongResultError, machine, model_file
from specrt.cli import flags
from specrt.errors import UnsupportedError
from specrt.gguf.reader import open_gguf
from specrt.llm import LLM, find_model
from specrt.options import MAX_DRAFT, SamplingParams, SpecOptions
from specrt.settings import DRAFT_MODEL, SPEC_PMIN
from specrt.speculative.registry import Registry
from specrt.state.messages import Window

WHOLE: Final = "full"
"""Stands for a whole draft in ``--num-drafts``."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The flags of this benchmark."""
    add_model(parser)
    parser.add_argument(
        DRAFT_MODEL.flag,
        dest="draft_models",
        action="append",
        metavar="FILE",
        help="a drafter's file; repeatable, for one in two quantisations for example (default: "
        "what comes with the tiny model)",
    )
    parser.add_argument(
        "--num-drafts",
        type=_num_drafts,
        default=_num_drafts(f"3,{WHOLE}"),
        metavar="K[,K]",
        help=f"the most tokens of a draft; {WHOLE}: all of a block, else 7 (default: 3,{WHOLE})",
    )
    parser.add_argument(
        "--turns",
        type=positives,
        default=[1, 3],
        metavar="N[,N]",
        help="of a conversation, that are told (default: 1,3)",
    )
    parser.add_argument(
        "--pairs", type=positive, default=3, metavar="N", help="of each prompt (default: 3)"
    )
    parser.add_argument("--ignore-eos", action="store_true", help="go on past end tokens")
    flags.add_settings(parser, "drafts", (SPEC_PMIN,))
    add_answers(parser)
    parser.add_argument("--png", type=Path, metavar="FILE", help="draw it there")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write who wins there")
    add_json(parser)
    parser.set_defaults(tokens=64)


def _num_drafts(text: str) -> list[int | None]:
    """Numbers from 1 to 64, or ``full``, which is None, between commas."""
    found = [None if one == WHOLE else positive(one) for one in names(text)]
    if not found or any(one is not None and one > MAX_DRAFT for one in found):
        raise argparse.ArgumentTypeError(
            f"{text!r}: expected integers from 1 to {MAX_DRAFT}, or {WHOLE}, joined by commas"
        )
    return found


def run(args: argparse.Namespace) -> int:
    """Measure, print, draw and save.

    Raises:
        WrongResultError: speculation changed an answer.
        SpecrtError: a flag, the model, a drafter or a prompt is impossible.
    """
    for path, flag in ((args.json, "--json"), (args.png, "--png"), (args.markdown, "--markdown")):
        check_writable(path, flag)
    if args.png is not None and find_spec("matplotlib") is None:
        raise UnsupportedError(
            "--png needs matplotlib, which is not here: pip install matplotlib, or specrt[bench]"
        )
    prompts = prompts_for(args.model, args.prompts)
    registry = Registry()
    llm = flags.load_model(
        args, spec=SpecOptions(type="none"), max_sequences=3, registry=registry, verbose=False
    )
    files = [open_gguf(find_model(file)) for file in draft_files(args)]
    drafters, declined = drafters_of(llm, files)
    enter(registry, drafters)
    for line in declined:
        print(f"declined: {line}")
    pmin = SPEC_PMIN.from_environment() if args.pmin is None else args.pmin
    contestants = contestants_of(drafters, args.num_drafts, SpecOptions(pmin=pmin))
    params = SamplingParams(max_tokens=args.tokens, ignore_eos=args.ignore_eos)
    measured, complete = collect(measure(llm, contestants, prompts, params, args.pairs, args.turns))
    if results := results_of(measured):
        tell(args, llm, results, declined, complete)
    return 0 if complete else 130


def draft_files(args: argparse.Namespace) -> list[str]:
    """As asked, else the environment's, else what comes with the tiny model where that is run."""
    if args.draft_models is not None:
        return list(args.draft_models)
    if (told := DRAFT_MODEL.from_environment()) is not None:
        return [told]
    is_tiny = Path(find_model(args.model)) == embedded_model()
    return [str(embedded_drafter())] if is_tiny else []


def measure(
    llm: LLM,
    contestants: Sequence[Contestant],
    prompts: Sequence[Prompt],
    params: SamplingParams,
    rounds: int,
    turns: Sequence[int],
) -> Iterator[Measured]:
    """Prompt by prompt every contestant beside plain decoding, pair after pair.

    The first pair of each is without the governor.

    Raises:
        WrongResultError: a contestant changed an answer.
    """
    record(llm, contestants, prompts[0])
    for prompt in prompts:
        for contestant in contestants:
            try:
                for spec, number in ((contestant.fixed, 1), (contestant.spec, rounds)):
                    for pair in conversations(llm, prompt, params, spec, number, max(turns)):
                        if pair.turn in turns:
                            yield Measured(contestant, pair, governed=spec is contestant.spec)
            except WrongResultError as error:
                raise WrongResultError(f"{contestant.label}: {error}") from error


def record(llm: LLM, contestants: Sequence[Contestant], prompt: Prompt) -> None:
    """Before any time counts: all programs, and pages of both sides touched."""
    most = 1 + max(one.num_draft for one in contestants)
    warm_up(llm, most)
    params = SamplingParams(max_tokens=2 * TURN, ignore_eos=True)
    for contestant in contestants:
        for _ in conversations(llm, prompt, params, contestant.fixed, 1, 1):
            pass
    drafting = (llm.speculation.resolve(one.spec).speculators for one in contestants)
    taps = {frozenset().union(*(one.taps for one in chain)) for chain in drafting}
    sequence = llm.target.open_sequence()
    for asked in taps:
        for rows in range(1, most + 1):
            llm.target.prepare([Window(sequence, [0] * rows, 0)], taps=asked)
    llm.target.close_sequence(sequence)


def tell(
    args: argparse.Namespace,
    llm: LLM,
    results: Sequence[Result],
    declined: Sequence[str],
    complete: bool,
) -> None:
    """Print, draw and save."""
    show_standings(results)
    host = machine(args.threads)
    if args.png is not None:
        draw(args.png, results, llm.path.name)
    if args.markdown is not None:
        args.markdown.write_text(markdown(results, llm.path.name, host), encoding="utf-8")
    content = {
        "bench": "speculators",
        "complete": complete,
        "machine": host,
        "model": model_file(llm.path),
        "settings": {
            "tokens": args.tokens,
            "pairs": args.pairs,
            "turns": args.turns,
            "ignore_eos": args.ignore_eos,
            "pmin": results[0].contestant.spec.pmin,
            "context": llm.context,
            "kv_type": llm.target.kv_type,
            "device": llm.target.ops.device,
        },
        "declined": declined,
        "results": results,
    }
    save(args.json, content)
