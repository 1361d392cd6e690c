"""``python -m specrt``: generate, chat, inspect, pull, verify-lossless, count-ids."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from specrt.cli import chat, count_ids, flags, generate, inspect, pull, verify_lossless
from specrt.cli.exits import exit_status

COMMANDS = {
    "generate": generate,
    "chat": chat,
    "inspect": inspect,
    "pull": pull,
    "verify-lossless": verify_lossless,
    "count-ids": count_ids,
}


def parser() -> flags.Parser:
    """All commands with their flags."""
    whole = flags.Parser(
        prog="python -m specrt", description="Lossless speculative decoding for GGUF models."
    )
    commands = whole.add_subparsers(
        dest="command", metavar="COMMAND", required=True, parser_class=flags.Parser
    )
    for name, command in COMMANDS.items():
        command.add_arguments(
            commands.add_parser(name, help=command.HELP, description=command.HELP)
        )
    return whole


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; what specrt raises on purpose becomes one line and an exit status.

    Returns:
        0; 1 if a check failed; 2 after an error; 130 after Ctrl-C; 141 if stdout was closed.
    """

    def run() -> int:
        args = parser().parse_args(arguments)
        return COMMANDS[args.command].run(args)

    return exit_status(run)


if __name__ == "__main__":
    sys.exit(main())
