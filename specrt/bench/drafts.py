"""Drafts of a block drafter by phase, against reading their bytes, and what a prompt pays."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from typing import cast

from specrt.bench.arguments import add_json, contexts_for, positive, positive_number, positives
from specrt.bench.draft_results import (
    BAR,
    Draft,
    FirstTokens,
    Found,
    OpTime,
    Phase,
    apart,
    bounds_of,
    first_tokens_of,
)
from specrt.bench.draft_steps import ANSWER, PLAIN, DraftSteps
from specrt.bench.floors import show_speeds
from specrt.bench.ops_around import HeardOps
from specrt.bench.report import (
    bound_rows,
    check_writable,
    collect,
    number,
    save,
    show,
    show_bounds,
    spread,
)
from specrt.bench.timing import machine, model_file
from specrt.bench.touched import Touched
from specrt.cli import flags
from specrt.drafters import check_drafter
from specrt.errors import OptionError, UnsupportedError
from specrt.gguf.reader import GGUFFile, open_gguf
from specrt.host import HostOps
from specrt.llm import LLM, find_model
from specrt.models import check_architecture
from specrt.models.loader import Dims
from specrt.models.loader import positive as positive_key
from specrt.ops import Ops
from specrt.options import SpecOptions
from specrt.settings import KV_TYPE, THREADS

CONTEXT, PROMPT, PROMPT_ROUNDS, FEW_WAITING = 512, 512, 5, 4


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The flags of this benchmark."""
    parser.add_argument("--model", metavar="FILE", help=flags.MODEL_HELP)
    parser.add_argument("--draft-model", metavar="FILE", required=True, help="a block drafter's")
    text = f"tokens before the block (default: {CONTEXT}, or as many as the model has room for)"
    parser.add_argument("--context", dest="contexts", type=positives, metavar="N[,N]", help=text)
    text = f"rows that wait to be injected (default: 1,{FEW_WAITING} and the block's)"
    parser.add_argument("--waiting", type=positives, metavar="W[,W]", help=text)
    text = f"byte floors that a draft may take where no cache holds them (default: {BAR})"
    parser.add_argument("--bar", type=positive_number, default=BAR, metavar="F", help=text)
    text = f"tokens of the prompt whose first token is timed (default: {PROMPT})"
    parser.add_argument("--prompt", type=positive, default=PROMPT, metavar="N", help=text)
    text = f"samples of each; of the prompt {PROMPT_ROUNDS} at most (default: 15)"
    parser.add_argument("--rounds", type=positive, default=15, metavar="N", help=text)
    flags.add_settings(parser, "model", [THREADS, KV_TYPE])
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Measure, print and save.

    Raises:
        WrongResultError: a draft depends on how many rows wait, or changes a first token.
        SpecrtError: a flag, the model or the drafter is impossible.
    """
    check_writable(args.json)
    gguf, drafter = open_pair(args)
    steps, prompt = load_steps(args, gguf, drafter), prompt_tokens(args, gguf)
    steps.check()
    rounds, complete = collect(steps.rounds(args.rounds))
    amounts = {key: speed.amount for key, speed in steps.speeds.items()}
    found, first = Found.of(rounds, amounts, steps.touched(), args.bar), None
    show_found(found)
    if complete:
        prompts, complete = collect(steps.first_tokens(prompt, min(args.rounds, PROMPT_ROUNDS)))
        first = first_tokens_of(prompt, prompts) if prompts else None
    if first is not None:
        show_first_tokens(first)
    bounds = bounds_of(found.drafts, first)
    show_bounds(bounds)
    for line in apart(found.drafts):
        print(line)
    content = {
        "bench": "drafts",
        "complete": complete,
        "machine": machine(args.threads),
        "model": model_file(gguf.path),
        "drafter": model_file(drafter.path),
        "settings": {"rounds": len(rounds), "kv_type": args.kv_type or "f16", "bar": args.bar},
        "first_token": first,
        "bounds": bound_rows(bounds),
    }
    save(args.json, content | asdict(found))
    return 0 if complete else 130


def load_steps(args: argparse.Namespace, gguf: GGUFFile, drafter: GGUFFile) -> DraftSteps:
    """The model with its drafter, and sequences for all that is timed."""
    contexts, waiting = amounts_of(args, gguf, drafter)
    host = HostOps(args.threads)
    ops, trained = HeardOps(host), Dims.read(gguf).context
    llm = LLM(
        gguf,
        cast(Ops, ops),
        context=max(max(contexts) + 1, min(prompt_tokens(args, gguf) + ANSWER, trained)),
        kv_type=args.kv_type or "f16",
        spec=SpecOptions(type=PLAIN),
        max_sequences=len(contexts) + 1,
        drafter=drafter,
    )
    return DraftSteps(llm, ops, host, contexts, waiting)


def prompt_tokens(args: argparse.Namespace, gguf: GGUFFile) -> int:
    """As asked, or as many as leave room for a token."""
    return min(args.prompt, Dims.read(gguf).context - 1)


def open_pair(args: argparse.Namespace) -> tuple[GGUFFile, GGUFFile]:
    """The target and a block drafter that was made for it.

    Raises:
        UnsupportedError: it drafts token by token.
        SpecrtError: the files do not fit each other.
    """
    gguf, drafter = (open_gguf(find_model(path)) for path in (args.model, args.draft_model))
    check_architecture(gguf)
    check_drafter(gguf, drafter)
    if drafter.architecture != "dflash":
        raise UnsupportedError(
            f"{drafter.path}: a NextN head drafts token by token, not by the phases of a block; "
            "pass a block drafter (dflash); `ablations` tells what a NextN head's steps take"
        )
    return gguf, drafter


def amounts_of(
    args: argparse.Namespace, gguf: GGUFFile, drafter: GGUFFile
) -> tuple[list[int], list[int]]:
    """Tokens before the block, and rows that wait.

    Raises:
        OptionError: more rows wait than a draft injects, or than there are tokens.
    """
    size = positive_key(drafter, "dflash.block_size")
    room = Dims.read(gguf).context - 1
    contexts = contexts_for(gguf, args.contexts or [max(1, min(CONTEXT, room))], 1)
    waiting = args.waiting or sorted({1, min(FEW_WAITING, size), size})
    if max(waiting) > size + 1:
        raise OptionError(
            f"--waiting {max(waiting)}: expected at most {size + 1}, since more are injected "
            "before the draft"
        )
    if max(waiting) > min(contexts):
        raise OptionError(
            f"--context {min(contexts)}: expected at least {max(waiting)}, the rows that wait"
        )
    return contexts, waiting


def show_found(found: Found) -> None:
    """All of it; of the ops those of the drafts with the most rows that wait."""
    show_speeds(found.speeds)
    show_drafts(found.drafts)
    show_phases(found.phases)
    most = max((one.waiting for one in found.ops), default=0)
    show_ops([one for one in found.ops if one.waiting == most])


def show_drafts(drafts: Sequence[Draft]) -> None:
    """Time, floors, factor and verdict."""
    show(
        "A draft, timed as a whole; its factor is over the byte floor",
        ("context", "waiting", "ms (least..most)", "MB", "bytes ms", "roofline ms",
         "factor (least..most)", "of least", "phases sum", "bar", "holds"),
        [
            (
                str(one.cached),
                str(one.waiting),
                spread(one.ms),
                number(one.num_bytes / 1e6, 1),
                number(one.byte_floor_ms, 3),
                number(one.roofline_ms, 3),
                spread(one.factor),
                number(one.least_factor),
                number(one.phases_share),
                number(one.bar),
                "" if one.bar is None else "yes" if one.factor.median <= one.bar else "no",
            )
            for one in drafts
        ],
        num_texts=0,
    )  # fmt: skip


def show_phases(phases: Sequence[Phase]) -> None:
    """What the program's phases and the host take."""
    show(
        "Its phases, timed within; the factor is over the roofline",
        ("phase", "context", "waiting", "ms (least..most)", "MB", "int GMAC", "float GMAC",
         "bytes ms", "roofline ms", "factor", "of least"),
        [
            (
                one.phase,
                str(one.cached),
                str(one.waiting),
                _fine(one),
                *_amounts(one.touched),
                number(one.byte_floor_ms, 3),
                number(one.roofline_ms, 3),
                number(one.factor),
                number(one.least_factor),
            )
            for one in phases
        ],
    )  # fmt: skip


def show_ops(ops: Sequence[OpTime]) -> None:
    """The ops of each phase."""
    show(
        "Its ops, with the most rows that wait",
        ("phase", "op", "context", "waiting", "calls", "ms"),
        [
            (one.phase, one.op, str(one.cached), str(one.waiting), str(one.calls),
             number(one.ms, 4))
            for one in ops
        ],
        num_texts=2,
    )  # fmt: skip


def show_first_tokens(one: FirstTokens) -> None:
    """Prefill and first token, with and without a drafter."""
    show(
        f"A prompt of {one.tokens} tokens: ms (least..most) without and with a drafter",
        ("up to", "without", "with", "of it the drafter", "ratio"),
        [
            ("prefill", spread(one.plain_prefill_ms), spread(one.prefill_ms),
             spread(one.following_ms), spread(one.prefill_ratio)),
            ("first token", spread(one.plain_ms), spread(one.ms), "", spread(one.ratio)),
        ],
    )  # fmt: skip


def _fine(phase: Phase) -> str:
    """With microseconds, which the host's phases take."""
    ms = phase.ms
    return f"{ms.median:.4f} ({ms.low:.4f}..{ms.high:.4f})"


def _amounts(touched: Touched | None) -> tuple[str, ...]:
    """Megabytes, and 10^9 multiply-adds; nothing where there are none to tell."""
    if touched is None:
        return "", "", ""
    products = (touched.int_products, touched.float_products)
    return number(touched.num_bytes / 1e6, 1), *(number(one / 1e9, 3) for one in products)
