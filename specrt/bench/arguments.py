"""The flags that several benchmarks share."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any, NoReturn

from specrt.errors import OptionError
from specrt.llm import LLM, load
from specrt.settings import DRAFT_MODEL, SETTINGS, SPEC, spec_options
from specrt.speculative.registry import Registry


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, as every other error does."""

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing the usage and leaving.

        Raises:
            OptionError: always.
        """
        raise OptionError(f"{message}; see {self.prog} --help")


def positive(text: str) -> int:
    """An integer from 1 on."""
    value = int(text) if text.isdecimal() else 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: expected an integer >= 1")
    return value


def positive_number(text: str) -> float:
    """A finite number above 0."""
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number > 0")
    return value


def names(text: str) -> list[str]:
    """What stands between commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def add_common(parser: argparse.ArgumentParser) -> None:
    """``--json`` and ``--threads``."""
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there too")
    parser.add_argument("--threads", type=positive, metavar="N", help="of the CPU")


def add_model(parser: argparse.ArgumentParser) -> None:
    """What ``load_model`` reads, beside the speculation's flags."""
    parser.add_argument("--model", metavar="FILE", help="a GGUF file, or a name that was pulled")
    parser.add_argument("--context", type=positive, metavar="N", help="positions of a sequence")
    parser.add_argument("--kv-type", default="f16", choices=["f16", "f32", "q8_0"])
    parser.add_argument("--device", default="auto", choices=["auto", "cpu", "reference"])
    parser.add_argument("--prompts", type=names, metavar="ID[,ID]", help="only these")
    parser.add_argument("--tokens", type=positive, metavar="N", help="of an answer, at most")


def add_settings(parser: argparse.ArgumentParser) -> None:
    """The flags of ``specrt.settings``, older spellings included."""
    for setting in SETTINGS:
        flags = (setting.flag, *setting.aliases)
        if setting is SPEC:
            parser.add_argument(
                *flags, dest=setting.name, action=argparse.BooleanOptionalAction, help=setting.help
            )
            continue
        # argparse reports a ValueError of ``type`` under the function's name.
        parser.add_argument(
            *flags, dest=setting.name, type=setting.parse, metavar="X",
            help=f"{setting.help}: {setting.expected}",
        )  # fmt: skip


def load_model(args: argparse.Namespace, registry: Registry | None = None) -> LLM:
    """The model, with room for a plain and a speculative sequence beside each other."""
    given: dict[str, Any] = vars(args)
    return load(
        args.model,
        draft_model=given.get(DRAFT_MODEL.name),
        device=args.device,
        context=args.context,
        kv_type=args.kv_type,
        spec=spec_options(given),
        threads=args.threads,
        max_sequences=2,
        registry=registry,
        verbose=False,
    )
