"""``python -m benchmarks.peers [build|run|curve]``."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from benchmarks.peers import build, curve, run
from specrt.bench.timing import WrongResultError
from specrt.cli.exits import exit_status
from specrt.cli.flags import Parser

COMMANDS = {"build": build, "run": run, "curve": curve}


def main(arguments: Sequence[str] | None = None) -> int:
    """Build llama-server, or measure.

    Returns:
        0; 1 for a missed bar or a wrong result, 2 for a wrong argument or model, or an engine that
        failed, 130 after Ctrl-C.
    """

    def command() -> int:
        args = _parser().parse_args(arguments)
        try:
            return COMMANDS[args.command].run(args)
        except WrongResultError as error:
            print(f"wrong result: {error}", file=sys.stderr)
            return 1

    return exit_status(command)


def _parser() -> Parser:
    parser = Parser(prog="python -m benchmarks.peers")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, module in COMMANDS.items():
        help_text = (module.__doc__ or "").splitlines()[0]
        module.add_flags(commands.add_parser(name, help=help_text, description=help_text))
    return parser


if __name__ == "__main__":
    sys.exit(main())
