"""The governor's bounds on a real model."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, TypeVar

from specrt.bench.arguments import add_answers, add_json, add_model, load_model, positive
from specrt.bench.governor_checks import (
    COPIED_TOKENS,
    PROSE_TOKENS,
    Adversarial,
    Curve,
    Predicted,
    Reaction,
    Replayed,
    adversarial,
    measure_curve,
    plain_answer,
    predicted,
    reaction,
    replayed,
)
from specrt.bench.prediction import LEAST
from specrt.bench.prompts import Prompt, load_prompts, prompts_for
from specrt.bench.report import (
    Bound,
    bound_rows,
    check_writable,
    collect,
    number,
    save,
    show,
    show_bounds,
    spread,
)
from specrt.bench.scripted import WrongSpeculator
from specrt.bench.timing import machine, model_file
from specrt.cli import flags
from specrt.completion import Completion
from specrt.errors import ContextError
from specrt.generate import chat_ids
from specrt.llm import LLM
from specrt.options import SamplingParams, SpecOptions
from specrt.settings import SPEC_DRAFT
from specrt.speculative.registry import Registry, SpeculatorFactory, default_registry

T = TypeVar("T")

END_TO_END = ("prose-why", "fact-table", "copy-text", "code-class")
"""The prompts of the bounds that need whole answers."""
CAPS = (8, 16)
"""The most tokens of a draft in replay, where no flag says."""
COPIED = "copy-text"
"""The prompt whose text is copied where prose turns to copying."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The flags of this benchmark; it names the speculators itself."""
    add_model(parser)
    add_answers(parser)
    flags.add_settings(parser, "speculation", [SPEC_DRAFT])
    add_json(parser)
    parser.add_argument("--pairs", type=positive, default=8, metavar="N", help="of each prompt")
    parser.add_argument(
        "--rounds", type=positive, default=15, metavar="N", help="samples of each row count"
    )
    parser.set_defaults(tokens=512)


def run(args: argparse.Namespace) -> int:
    """Measure, print and save.

    Raises:
        WrongResultError: speculation changed an answer.
        SpecrtError: a flag, the model or a prompt is impossible.
    """
    check_writable(args.json)
    prompts = prompts_for(args.model, args.prompts)
    wrong = WrongSpeculator()
    num_draft = args.num_draft or SPEC_DRAFT.from_environment()
    llm = load_model(args, registry_with(wrong), SpecOptions(num_draft=num_draft))
    found, complete = collect(measure(llm, wrong, prompts, args))
    for kind, show_kind in SHOWN.items():
        if _of(found, kind):
            show_kind(_of(found, kind))
    bounds = bounds_of(found)
    show_bounds(bounds)
    content: dict[str, Any] = {
        "bench": "governor",
        "complete": complete,
        "machine": machine(args.threads),
        "model": model_file(llm.path),
        "settings": {
            "tokens": args.tokens,
            "pairs": args.pairs,
            "rounds": args.rounds,
            "kv_type": llm.target.kv_type,
            "spec": asdict(llm.generator.spec),
        },
        "bounds": bound_rows(bounds),
    }
    save(args.json, content | {kind.__name__.lower(): _of(found, kind) for kind in SHOWN})
    return 0 if complete else 130


def registry_with(wrong: WrongSpeculator) -> Registry:
    """specrt's own, and the drafter that is always wrong."""
    registry = default_registry()
    registry.register(SpeculatorFactory(wrong.name, False, lambda *_: wrong))
    return registry


def measure(
    llm: LLM, wrong: WrongSpeculator, prompts: list[Prompt], args: argparse.Namespace
) -> Iterator[object]:
    """The cost curve, then replay, the always wrong drafter, n-gram, and the turn to copying."""
    params = SamplingParams(max_tokens=args.tokens, ignore_eos=True)
    source = copied_prompt(llm)
    most_draft = llm.generator.spec.num_draft
    caps = CAPS if most_draft is None else (most_draft,)
    curve, costs = measure_curve(llm, max(caps) + 1, args.tokens // 2 + 128, args.rounds)
    yield curve
    answers: dict[str, Completion] = {}
    for prompt in prompts:
        answers[prompt.id] = plain_answer(llm, prompt, params)
        for cap in caps:
            yield replayed(prompt, answers[prompt.id], costs, cap)
    whole = [prompt for prompt in prompts if prompt.id in END_TO_END] or prompts[:4]
    for prompt in whole:
        yield adversarial(llm, wrong, prompt, answers[prompt.id], params, args.pairs)
    for prompt in whole:
        yield predicted(llm, prompt, answers[prompt.id], params, args.pairs)
    for prompt in [one for one in prompts if one.category == "prose"] or prompts[:1]:
        yield reaction(llm, prompt, answers[prompt.id], source)


def copied_prompt(llm: LLM) -> list[int]:
    """The ids of the prompt that is copied from.

    Raises:
        ContextError: prose and copy do not fit behind it.
    """
    messages = load_prompts([COPIED])[0].messages
    ids = chat_ids(llm.tokenizer, llm.chat_template, messages, enable_thinking=False)
    needed = len(ids) + PROSE_TOKENS + COPIED_TOKENS
    if needed > llm.context:
        raise ContextError(
            f"context = {llm.context}: the turn from prose to copying takes {needed} positions; "
            "pass a larger --context, or a model with one"
        )
    return ids


def bounds_of(found: list[object]) -> list[Bound]:
    """The worst prompt of each bound that was measured."""
    bounds = []
    replays = _of(found, Replayed)
    for cap in dict.fromkeys(one.most_draft for one in replays):
        shares = [one.share for one in replays if one.most_draft == cap]
        name = f"replay, K <= {cap}: of the best fixed K, least prompt"
        bounds.append(Bound(name, min(shares), 0.95))
    if ratios := [one.ratio.median for one in _of(found, Adversarial)]:
        bounds.append(Bound("always wrong drafter: of plain, least prompt", min(ratios), 0.98))
    if shares := [one.share.median for one in _of(found, Predicted)]:
        bounds.append(Bound("n-gram: of the predicted ratio, least prompt", min(shares), LEAST))
    if tokens := [one.tokens for one in _of(found, Reaction)]:
        bounds.append(Bound("turn to copying: tokens to K >= 2, most", max(tokens), 64, True))
    return bounds


def show_curve(curves: list[Curve]) -> None:
    """c(T) and how many plain steps that is."""
    for curve in curves:
        first = curve.milliseconds[0]
        show(
            f"A verify of T rows behind {curve.cached} tokens",
            ("T", "ms", "plain steps"),
            [
                (str(rows), number(ms, 3), number(ms / first))
                for rows, ms in enumerate(curve.milliseconds, 1)
            ],
        )


def show_replayed(results: list[Replayed]) -> None:
    """The governor beside the best fixed K."""
    show(
        "n-gram in replay over the measured costs",
        (
            "prompt",
            "tokens",
            "places with a hit",
            "K <=",
            "best K",
            "its ms",
            "governor ms",
            "share",
        ),
        [
            (
                one.prompt,
                str(one.tokens),
                f"{one.hits:.0%}",
                str(one.most_draft),
                str(one.best_num_draft),
                number(one.best_ms, 0),
                number(one.adaptive_ms, 0),
                number(one.share, 3),
            )
            for one in results
        ],
    )


def show_adversarial(results: list[Adversarial]) -> None:
    """Over plain."""
    show(
        "A drafter that is always wrong, under the governor",
        ("prompt", "tokens", "ratio (least..most)", "steps with a draft"),
        [
            (one.prompt, str(one.tokens), spread(one.ratio), _drafted(one.num_draft_counts))
            for one in results
        ],
    )


def show_predicted(results: list[Predicted]) -> None:
    """Measured beside predicted."""
    show(
        "n-gram from end to end, and what its steps and the row costs predict",
        ("prompt", "tok/s", "predicted", "share (least..most)", "ratio (least..most)",
         "predicted", "length"),
        [
            (
                one.prompt,
                number(one.tokens_per_second, 1),
                number(one.predicted_tokens_per_second, 1),
                spread(one.share),
                spread(one.ratio),
                number(one.predicted_ratio),
                number(one.acceptance_length),
            )
            for one in results
        ],
    )  # fmt: skip


def show_reactions(results: list[Reaction]) -> None:
    """From the first hit on."""
    show(
        "From prose to copying",
        ("prose", "its tokens", "first hit after", "tokens to K >= 2"),
        [(r.prompt, str(r.prose), str(r.first_hit), str(r.tokens)) for r in results],
    )


SHOWN: dict[type, Any] = {
    Curve: show_curve,
    Replayed: show_replayed,
    Adversarial: show_adversarial,
    Predicted: show_predicted,
    Reaction: show_reactions,
}


def _of(found: list[object], kind: type[T]) -> list[T]:
    return [one for one in found if isinstance(one, kind)]


def _drafted(counts: dict[int, int]) -> str:
    return f"{1 - counts.get(0, 0) / sum(counts.values()):.1%}"
