"""``generate``: one prompt, its answer as it comes."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from specrt.cli import flags
from specrt.cli.answer import STYLES, OriginSpans, legend, summary
from specrt.errors import OptionError

if TYPE_CHECKING:
    from specrt.generate import Stream
    from specrt.llm import LLM

HELP = "answer one prompt"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of this command."""
    flags.add_model(parser)
    prompt = parser.add_mutually_exclusive_group()
    prompt.add_argument("-p", "--prompt", metavar="TEXT")
    prompt.add_argument("-f", "--file", metavar="FILE", help="the prompt's file, - for stdin")
    parser.add_argument(
        "--raw", action="store_true", help="continue the text as it is, without the chat template"
    )
    parser.add_argument(
        "--show-drafts", action="store_true", help="colour each token by where it came from"
    )
    flags.add_sampling(parser)
    flags.add_chat(parser)
    flags.add_speculation(parser)


def run(args: argparse.Namespace) -> int:
    """Stream the answer to stdout, and one line about it to stderr."""
    params, prompt = flags.sampling_params(args), _prompt(args)
    llm = flags.load_model(args)
    with llm.stream(_ids(llm, prompt, args), params) as stream:
        try:
            _show(llm, stream, args.show_drafts)
        finally:
            print(flush=True)
            if stream.stats.emitted:
                _below(stream, args.show_drafts)
    return 0


def _prompt(args: argparse.Namespace) -> str:
    if args.prompt is not None:
        return args.prompt
    if args.file is None:
        raise OptionError("no prompt: expected -p TEXT, or -f FILE (- for stdin)")
    return sys.stdin.read() if args.file == "-" else Path(args.file).read_text()


def _ids(llm: LLM, prompt: str, args: argparse.Namespace) -> list[int]:
    """The prompt's ids, as a chat's only message where the file has a template."""
    from specrt.generate import chat_ids

    if args.raw or llm.chat_template.is_raw:
        return llm.tokenizer.encode(prompt)
    messages = [*flags.system_messages(args), {"role": "user", "content": prompt}]
    variables = flags.template_variables(args)
    return chat_ids(llm.tokenizer, llm.chat_template, messages, **variables)


def _show(llm: LLM, stream: Stream, show_drafts: bool) -> None:
    if not show_drafts:
        for piece in stream:
            print(piece.text, end="", flush=True)
        return
    from rich.console import Console
    from rich.text import Text

    console, coloured = Console(soft_wrap=True), OriginSpans(llm.tokenizer.token_bytes)
    for piece in stream:
        coloured.add(piece.token_ids, piece.origins)
        for text, origin in coloured.spans(piece.text):
            console.print(Text(text, STYLES[origin]), end="")


def _below(stream: Stream, show_drafts: bool) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=True, soft_wrap=True)
    if show_drafts:
        console.print(legend(stream.stats))
    console.print(Text(summary(stream.stats), "dim"))
