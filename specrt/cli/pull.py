"""``pull``: fetch a model."""

from __future__ import annotations

import argparse

from specrt.assets import FILES

HELP = "fetch a small model"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of this command."""
    from specrt.pull import MODELS

    parser.add_argument("name", metavar="NAME", help=f"one of {', '.join(MODELS)}")


def run(args: argparse.Namespace) -> int:
    """The last line on stdout is the path of the file."""
    from specrt.cli.answer import tell
    from specrt.pull import pull

    if args.name in FILES:
        path = FILES[args.name]
        card = path.parent / "MODEL_CARD.md"
        tell(f"{args.name} comes with specrt: there is nothing to fetch; about it: {card}")
        print(path)
    else:
        pull(args.name)
    return 0
