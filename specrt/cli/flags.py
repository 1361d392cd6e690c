"""Flags that several commands share, and what they make of them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, NoReturn

from specrt.assets import TINY
from specrt.errors import OptionError
from specrt.options import SamplingParams, SpecOptions
from specrt.settings import DRAFT_IDS, DRAFT_MODEL, MODEL, SPEC, SPECULATION, Setting, spec_options

if TYPE_CHECKING:
    from specrt.llm import LLM


MODEL_HELP = f"a GGUF file, or a name: {TINY} (comes with specrt; the default), or a pulled model's"


class Parser(argparse.ArgumentParser):
    """Raises what argparse would print and exit with."""

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """A switch's older spelling takes the 0 or 1 behind it, and nothing else."""
        given = sys.argv[1:] if args is None else list(args)
        return super().parse_known_args(_with_switch_values(given), namespace)

    def error(self, message: str) -> NoReturn:
        raise OptionError(f"{message}; see `{self.prog} --help`")


def _with_switch_values(arguments: list[str]) -> list[str]:
    """``--mtp-spec 0`` and ``--mtp-spec`` as ``--mtp-spec=0`` and ``--mtp-spec=1``.

    argparse would take whatever follows for the value, a model's path too.
    """
    done: list[str] = []
    waiting = list(arguments)
    while waiting and waiting[0] != "--":
        argument = waiting.pop(0)
        if argument in SPEC.aliases:
            value = waiting.pop(0) if waiting[:1] in (["0"], ["1"]) else "1"
            argument = f"{argument}={value}"
        done.append(argument)
    return done + waiting


def add_file(parser: argparse.ArgumentParser) -> None:
    """MODEL, the embedded one if it is left out."""
    parser.add_argument("model", nargs="?", metavar="MODEL", help=MODEL_HELP)


def add_model(parser: argparse.ArgumentParser) -> None:
    """MODEL, and how to load it."""
    add_file(parser)
    add_load(parser)


def add_load(parser: argparse.ArgumentParser) -> None:
    """How to load a model."""
    add_settings(parser, "model", MODEL)


def add_speculation(parser: argparse.ArgumentParser) -> None:
    """The flags of speculation, older spellings included."""
    add_settings(parser, "speculation", SPECULATION)


def add_settings(parser: argparse.ArgumentParser, title: str, settings: Iterable[Setting]) -> None:
    """A group of flags from the table."""
    group = parser.add_argument_group(title)
    for setting in settings:
        if setting is SPEC:
            _add_switch(group, setting)
            continue
        parse = _parser_of(setting)
        group.add_argument(
            setting.flag,
            dest=setting.name,
            type=parse,
            metavar=setting.metavar,
            help=_help_of(setting),
        )
        for alias in setting.aliases:
            group.add_argument(alias, dest=setting.name, type=parse, help=argparse.SUPPRESS)


def _add_switch(group: Any, setting: Setting) -> None:
    """The switch, whose older spelling takes 0 or 1 (``Parser`` adds it where it stands alone)."""
    action = argparse.BooleanOptionalAction
    group.add_argument(setting.flag, dest=setting.name, action=action, help=_help_of(setting))
    for alias in setting.aliases:
        parse = _parser_of(setting)
        group.add_argument(alias, dest=setting.name, type=parse, help=argparse.SUPPRESS)


def _help_of(setting: Setting) -> str:
    return f"{setting.help} (default: {setting.default})"


def _parser_of(setting: Setting) -> Callable[[str], Any]:
    def parse(text: str) -> Any:
        try:
            return setting.parse(text)
        except ValueError:
            message = f"got {text!r}, expected {setting.expected}"
            raise argparse.ArgumentTypeError(message) from None

    return parse


_SAMPLING = {
    "temperature": (float, "T", "0 takes the likeliest token (default: 0)"),
    "top_k": (int, "N", "draw among the N likeliest tokens"),
    "top_p": (float, "P", "draw among the likeliest tokens that sum to P"),
    "min_p": (float, "P", "drop tokens below P times the likeliest one's probability"),
    "repetition_penalty": (float, "F", "divide the logits of tokens that occurred"),
    "presence_penalty": (float, "F", "subtract from the logits of generated tokens"),
    "frequency_penalty": (float, "F", "subtract for each time that a token was generated"),
    "seed": (int, "N", "of the draws (default: random)"),
    "min_tokens": (int, "N", "no end before so many tokens"),
}


def add_sampling(parser: argparse.ArgumentParser) -> None:
    """The fields of ``SamplingParams`` that make sense on a command line."""
    group = parser.add_argument_group("sampling")
    group.add_argument(
        "-n",
        "--max-tokens",
        type=int,
        metavar="N",
        help="most tokens of an answer (default: to the end of the context)",
    )
    for name, (kind, metavar, text) in _SAMPLING.items():
        flag = f"--{name.replace('_', '-')}"
        group.add_argument(flag, type=kind, metavar=metavar, help=text)
    group.add_argument("--stop", action="append", metavar="TEXT", help="end there; repeatable")
    group.add_argument(
        "--ignore-eos", action="store_true", default=None, help="go on behind an end token"
    )


def add_chat(parser: argparse.ArgumentParser) -> None:
    """What the chat template is given."""
    group = parser.add_argument_group("chat template")
    group.add_argument("--system", metavar="TEXT", help="a system message before the first turn")
    group.add_argument(
        "--think",
        action=argparse.BooleanOptionalAction,
        help="let the model think first, where its template has a switch (enable_thinking)",
    )


def template_variables(args: argparse.Namespace) -> dict[str, Any]:
    """What ``--think`` sets; nothing if it was not given, so that the template decides."""
    return {} if args.think is None else {"enable_thinking": args.think}


def check_template(args: argparse.Namespace, lacks: str | None) -> None:
    """Check that nothing that needs a chat template was asked for where there is none.

    Args:
        lacks: why there is none, None if there is one.

    Raises:
        OptionError: something was.
    """
    asked = getattr(args, "chat", False) or args.system or args.think is not None
    if lacks is not None and asked:
        raise OptionError(
            f"--chat, --system and --think need a chat template, and {lacks}: leave them out"
        )


def system_messages(args: argparse.Namespace) -> list[dict[str, str]]:
    """The system message, if there is one."""
    return [{"role": "system", "content": args.system}] if args.system else []


def sampling_params(args: argparse.Namespace) -> SamplingParams:
    """The flags that were given, over the defaults."""
    names = {field.name for field in fields(SamplingParams)}
    given = {name: value for name, value in vars(args).items() if name in names}
    return SamplingParams(**{name: value for name, value in given.items() if value is not None})


def spec_from(args: argparse.Namespace) -> SpecOptions:
    """Flags over environment over defaults."""
    return spec_options({setting.name: getattr(args, setting.name) for setting in SPECULATION})


def load_model(
    args: argparse.Namespace,
    *,
    spec: SpecOptions | None = None,
    verbose: bool | None = None,
    **options: Any,
) -> LLM:
    """Load what the flags name.

    Args:
        spec: in place of the speculation flags.
        verbose: say what is compiled, and the memory plan; None: where stderr is a terminal.
        options: further keywords of ``load``.
    """
    from specrt.llm import load

    return load(
        args.model,
        draft_model=getattr(args, DRAFT_MODEL.name, None),
        draft_ids=getattr(args, DRAFT_IDS.name, None),
        device=args.device or "auto",
        context=args.context,
        kv_type=args.kv_type or "f16",
        spec=spec_from(args) if spec is None else spec,
        threads=args.threads,
        graph_budget=args.graph_budget,
        verbose=sys.stderr.isatty() if verbose is None else verbose,
        **options,
    )
