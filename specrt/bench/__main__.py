"""``python -m specrt.bench COMMAND``; without one, speculators."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from specrt.bench import (
    ablations,
    curve,
    drafts,
    e2e,
    floors,
    governor,
    host,
    kernels,
    load,
    ops,
    speculators,
    spread,
    verify,
)
from specrt.bench.timing import WrongResultError
from specrt.cli.exits import exit_status
from specrt.cli.flags import Parser

DEFAULT = "speculators"
COMMANDS = {
    DEFAULT: speculators,
    "e2e": e2e,
    "ablations": ablations,
    "ops": ops,
    "host": host,
    "governor": governor,
    "load": load,
    "floors": floors,
    "drafts": drafts,
    "curve": curve,
    "spread": spread,
    "kernels": kernels,
    "verify-kernels": verify,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one benchmark; without a name, the one that shows all speculators.

    Returns:
        0; 1 for a wrong result, 2 for a wrong argument or model, 130 after Ctrl-C,
        141 if stdout was closed.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given or (given[0] not in COMMANDS and given[0] not in ("-h", "--help")):
        given.insert(0, DEFAULT)

    def run() -> int:
        try:
            args = _parser().parse_args(given)
            return COMMANDS[args.command].run(args)
        except WrongResultError as error:
            print(f"wrong result: {error}", file=sys.stderr)
            return 1

    return exit_status(run)


def _parser() -> Parser:
    parser = Parser(prog="python -m specrt.bench", description=f"Without a command: {DEFAULT}.")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, module in COMMANDS.items():
        help_text = (module.__doc__ or "").splitlines()[0]
        module.add_flags(commands.add_parser(name, help=help_text, description=help_text))
    return parser


if __name__ == "__main__":
    sys.exit(main())
