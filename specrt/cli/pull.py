"""``pull``: fetch a model."""

from __future__ import annotations

import argparse

HELP = "fetch a small model"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of this command."""
    from specrt.pull import MODELS

    parser.add_argument("name", metavar="NAME", help=f"one of {', '.join(MODELS)}")


def run(args: argparse.Namespace) -> int:
    """The last line on stdout is the path of the file."""
    from specrt.pull import pull

    pull(args.name)
    return 0
