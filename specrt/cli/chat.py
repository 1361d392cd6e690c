"""``specrt chat``: a conversation in the terminal."""

from __future__ import annotations

import argparse
import sys

from specrt.cli.flags import add_model_flags, add_sampling_flags, load_options, sampling_params
from specrt.cli.generate import show
from specrt.cli.summary import summary


def add_parser(commands: argparse._SubParsersAction) -> None:
    """Describe the command."""
    parser = commands.add_parser(
        "chat",
        help="talk with a model",
        description="Talk with a model. Ctrl-C stops an answer, Ctrl-D ends the conversation.",
    )
    add_model_flags(parser)
    parser.add_argument("--system", help="what the model is told first")
    parser.add_argument(
        "--think",
        action=argparse.BooleanOptionalAction,
        help="set the template's enable_thinking",
    )
    add_sampling_flags(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Read lines and answer them until the end of the input."""
    import specrt

    params = sampling_params(args)
    llm = specrt.load(args.model, **load_options(args))
    if llm.chat_template.is_raw:
        print("this file has no chat template: your text is continued as it is", file=sys.stderr)
    variables = {} if args.think is None else {"enable_thinking": args.think}
    with llm.session() as session:
        if args.system:
            session.messages = [{"role": "system", "content": args.system}]
        while True:
            try:
                line = input("> ")
            except EOFError:
                print()
                return 0
            if not line.strip():
                continue
            try:
                with session.stream_send(line, params, **variables) as stream:
                    show(stream)
            except KeyboardInterrupt:
                print("\n(stopped; this turn is forgotten)", file=sys.stderr)
            else:
                print(summary(stream.stats), file=sys.stderr)
