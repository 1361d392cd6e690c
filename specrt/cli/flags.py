"""Flags that several commands take, and what they become."""

from __future__ import annotations

import argparse
from typing import Any

from specrt.errors import OptionError
from specrt.options import SamplingParams
from specrt.settings import DRAFT_MODEL, SPEC, SPEC_DRAFT, SPEC_PMIN, SPEC_TYPE, spec_options


def add_model_flags(parser: argparse.ArgumentParser) -> None:
    """The model, what else ``load`` takes, and how to speculate."""
    parser.add_argument(
        "model", nargs="?", help="a GGUF file or the name of a pulled model (smollm2-135m)"
    )
    add_load_flags(parser)


def add_load_flags(parser: argparse.ArgumentParser) -> None:
    """What ``load_options`` reads."""
    group = parser.add_argument_group("model")
    group.add_argument("--context", type=int, help="positions of a sequence")
    group.add_argument("--threads", type=int, help="CPU threads")
    group.add_argument("--kv-type", choices=("f16", "f32", "q8_0"), default="f16")
    group.add_argument("--device", choices=("auto", "cpu", "reference"), default="auto")
    group.add_argument(*_spellings(DRAFT_MODEL), dest="draft_model", help=DRAFT_MODEL.help)
    group = parser.add_argument_group("speculation")
    group.add_argument(
        *_spellings(SPEC), dest="spec", action=argparse.BooleanOptionalAction, help=SPEC.help
    )
    for setting in (SPEC_TYPE, SPEC_DRAFT, SPEC_PMIN):
        group.add_argument(
            *_spellings(setting), dest=setting.name, type=setting.parse, help=setting.help
        )


def add_sampling_flags(parser: argparse.ArgumentParser) -> None:
    """What ``SamplingParams`` takes."""
    group = parser.add_argument_group("sampling")
    group.add_argument("-n", "--max-tokens", type=int, help="tokens to generate at most")
    group.add_argument("--temperature", type=float, default=0.0, help="0 is greedy")
    group.add_argument("--top-k", type=int, default=0)
    group.add_argument("--top-p", type=float, default=1.0)
    group.add_argument("--min-p", type=float, default=0.0)
    group.add_argument("--repetition-penalty", type=float, default=1.0)
    group.add_argument("--presence-penalty", type=float, default=0.0)
    group.add_argument("--frequency-penalty", type=float, default=0.0)
    group.add_argument("--seed", type=int)
    group.add_argument("--stop", action="append", default=[], help="may be given several times")
    group.add_argument("--ignore-eos", action="store_true")


def load_options(args: argparse.Namespace) -> dict[str, Any]:
    """Keywords of ``specrt.load``."""
    given = {name: getattr(args, name) for name in ("spec", "type", "num_draft", "pmin")}
    return {
        "draft_model": args.draft_model,
        "context": args.context,
        "threads": args.threads,
        "kv_type": args.kv_type,
        "device": args.device,
        "spec": spec_options(given),
    }


def sampling_params(args: argparse.Namespace) -> SamplingParams:
    """The flags as sampling parameters.

    Raises:
        OptionError: a value is out of its range.
    """
    return SamplingParams(
        temperature=args.temperature,
        top_k=args.top_k,
        top_p=args.top_p,
        min_p=args.min_p,
        repetition_penalty=args.repetition_penalty,
        presence_penalty=args.presence_penalty,
        frequency_penalty=args.frequency_penalty,
        seed=args.seed,
        stop=tuple(args.stop),
        max_tokens=args.max_tokens,
        ignore_eos=args.ignore_eos,
    )


def checked_prompt(text: str | None) -> str:
    """A prompt that was given.

    Raises:
        OptionError: there is none.
    """
    if not text:
        raise OptionError("no prompt: expected some text; pass it with -p")
    return text


def _spellings(setting: Any) -> tuple[str, ...]:
    return (setting.flag, *setting.aliases)
