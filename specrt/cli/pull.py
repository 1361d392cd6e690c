"""``pull``: fetch a model."""

from __future__ import annotations

import argparse

from specrt.assets import TINY

HELP = "fetch a small model"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of this command."""
    from specrt.pull import MODELS

    parser.add_argument("name", metavar="NAME", help=f"one of {', '.join(MODELS)}")


def run(args: argparse.Namespace) -> int:
    """The last line on stdout is the path of the file."""
    from specrt.assets import embedded_model
    from specrt.cli.answer import tell
    from specrt.pull import pull

    if args.name == TINY:
        path = embedded_model()
        card = path.parent / "MODEL_CARD.md"
        tell(f"{TINY} comes with specrt: there is nothing to fetch; about it: {card}")
        print(path)
    else:
        pull(args.name)
    return 0
