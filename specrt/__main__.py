"""``python -m specrt``: generate, chat, inspect, pull, verify-lossless."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from specrt.cli import chat, flags, generate, inspect, pull, verify_lossless
from specrt.errors import SpecrtError

COMMANDS = {
    "generate": generate,
    "chat": chat,
    "inspect": inspect,
    "pull": pull,
    "verify-lossless": verify_lossless,
}
EXIT_ERROR = 2
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141


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
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal that lacks a character
    try:
        args = parser().parse_args(arguments)
        return COMMANDS[args.command].run(args)
    except BrokenPipeError:
        # What is still buffered must not fail again when Python exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_BROKEN_PIPE
    except (SpecrtError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_ERROR
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
