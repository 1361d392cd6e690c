"""The flags that several benchmarks share."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path

from specrt.cli import flags
from specrt.errors import OptionError
from specrt.gguf.reader import GGUFFile
from specrt.llm import LLM
from specrt.models.loader import Dims
from specrt.options import SpecOptions
from specrt.speculative.registry import Registry

CONTEXTS = (128, 4096)


def positive(text: str) -> int:
    """An integer from 1 on."""
    value = int(text) if text.isdecimal() else 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: expected an integer >= 1")
    return value


def positives(text: str) -> list[int]:
    """Integers from 1 on, between commas."""
    found = [positive(name) for name in names(text)]
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r}: expected integers joined by commas")
    return sorted(set(found))


def positive_number(text: str) -> float:
    """A finite number above 0."""
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number > 0")
    return value


def share(text: str) -> float:
    """A number from 0 to 1."""
    value = float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number from 0 to 1")
    return value


def shares(text: str) -> list[float]:
    """Numbers from 0 to 1, between commas."""
    found = [share(name) for name in names(text)]
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r}: expected numbers joined by commas")
    return sorted(set(found))


def names(text: str) -> list[str]:
    """What stands between commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def add_json(parser: argparse.ArgumentParser) -> None:
    """``--json``."""
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there too")


def add_model(parser: argparse.ArgumentParser) -> None:
    """The model, and how to load it."""
    parser.add_argument("--model", metavar="FILE", help=flags.MODEL_HELP)
    flags.add_load(parser)


def add_contexts(parser: argparse.ArgumentParser) -> None:
    """``--context``: not how many positions are loaded, but how many lie before what is timed."""
    parser.add_argument(
        "--context",
        dest="contexts",
        type=positives,
        metavar="N[,N]",
        help="tokens before the rows (default: 128,4096, or as many as the model has room for)",
    )


def contexts_for(gguf: GGUFFile, asked: Sequence[int] | None, rows: int) -> list[int]:
    """How many tokens lie before that many rows: as asked, else as many as the model has room for.

    Raises:
        OptionError: they are more than the model was trained for.
    """
    trained = Dims.read(gguf).context
    contexts = asked or sorted({max(1, min(tokens, trained - rows)) for tokens in CONTEXTS})
    needed = max(contexts) + rows
    if needed > trained:
        raise OptionError(
            f"--context {max(contexts)}: with {rows} rows behind it {needed} positions, expected "
            f"at most {trained}, the context of {gguf.path}: pass a shorter --context"
        )
    return list(contexts)


def add_answers(parser: argparse.ArgumentParser) -> None:
    """What is generated."""
    parser.add_argument("--prompts", type=names, metavar="ID[,ID]", help="only these")
    parser.add_argument("--tokens", type=positive, metavar="N", help="of an answer, at most")


def load_model(
    args: argparse.Namespace, registry: Registry | None = None, spec: SpecOptions | None = None
) -> LLM:
    """The model, with room for a plain and a speculative sequence, and for one to measure rows in.

    Args:
        registry: in place of specrt's own.
        spec: in place of the speculation flags.
    """
    return flags.load_model(args, spec=spec, max_sequences=3, registry=registry, verbose=False)
