"""``inspect``: what a file holds, and whether it runs here."""

from __future__ import annotations

import argparse

from specrt.cli import flags
from specrt.errors import SpecrtError
from specrt.settings import DRAFT_MODEL, MODEL

HELP = "say what a GGUF file holds"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of this command."""
    parser.add_argument("model", metavar="FILE", help="a GGUF file, or the name of a pulled model")
    flags.add_settings(parser, "memory plan", (DRAFT_MODEL, *MODEL))


def run(args: argparse.Namespace) -> int:
    """Print the tables; a file that cannot be run is described all the same."""
    from specrt.inspect import inspect
    from specrt.llm import find_model
    from specrt.options import SpecOptions

    path = find_model(args.model)
    try:
        plan = flags.load_model(args, spec=SpecOptions("none"), verbose=False).plan.rows()
        rows = [("runs here", "yes"), *plan]
    except SpecrtError as error:
        rows = [("runs here", f"no: {error}")]
    inspect(path, args.draft_model, plan=rows)
    return 0
