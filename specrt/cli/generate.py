"""``generate``: one prompt, its answer as it comes."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from specrt.cli import flags
from specrt.cli.answer import STYLES, OriginSpans, for_terminal, legend, summary, tell, write
from specrt.errors import OptionError

if TYPE_CHECKING:
    from specrt.llm import LLM
    from specrt.stream import Stream

HELP = "answer one prompt"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of this command."""
    flags.add_model(parser)
    prompt = parser.add_mutually_exclusive_group()
    prompt.add_argument("-p", "--prompt", metavar="TEXT", help="what to answer")
    prompt.add_argument("-f", "--file", metavar="FILE", help="the prompt's file (default: stdin)")
    form = parser.add_mutually_exclusive_group()
    form.add_argument(
        "--chat",
        action="store_const",
        const=True,
        help="wrap the prompt in the file's chat template (default: if it has one)",
    )
    form.add_argument(
        "--raw",
        dest="chat",
        action="store_const",
        const=False,
        help="continue the prompt as it is",
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
    llm = flags.load_model(args, max_sequences=1)
    with llm.stream(_ids(llm, prompt, args), params) as stream:
        try:
            _show(llm, stream, args.show_drafts)
        finally:
            print(flush=True)
            if stream.stats.emitted:
                if args.show_drafts:
                    tell(legend(stream.stats))
                tell(summary(stream.stats))
    return 0


def _prompt(args: argparse.Namespace) -> str:
    """What was given, or what a pipe holds; the newline that ends a file is not part of it.

    Raises:
        OptionError: nothing was given, or nothing but space.
    """
    if args.prompt is None:
        text = _read(args.file).removesuffix("\n").removesuffix("\r")
    else:
        text = args.prompt
    if not text.strip():
        raise OptionError("the prompt is empty: expected -p TEXT, or a text in -f FILE or stdin")
    return text


def _read(file: str | None) -> str:
    if file is None and sys.stdin.isatty():
        raise OptionError("no prompt: expected -p TEXT, -f FILE, or a text piped into stdin")
    try:
        return sys.stdin.read() if file in (None, "-") else Path(file).read_text("utf-8")
    except UnicodeDecodeError as error:
        raise OptionError(f"{file or 'stdin'}: {error}; expected a text in UTF-8") from None


def _ids(llm: LLM, prompt: str, args: argparse.Namespace) -> list[int]:
    """The prompt's ids, as a chat's only message where the file has a template."""
    from specrt.generate import chat_ids

    bare = llm.chat_template.is_raw
    if bare or args.chat is False:
        flags.check_template(args, f"{llm.path} has none" if bare else "--raw goes without it")
        return llm.tokenizer.encode(prompt)
    messages = [*flags.system_messages(args), {"role": "user", "content": prompt}]
    variables = flags.template_variables(args)
    return chat_ids(llm.tokenizer, llm.chat_template, messages, **variables)


def _show(llm: LLM, stream: Stream, show_drafts: bool) -> None:
    if not show_drafts:
        for piece in stream:
            write(piece.text)
        return
    from rich.console import Console
    from rich.text import Text

    console, coloured = Console(soft_wrap=True), OriginSpans(llm.tokenizer.token_bytes)
    for piece in stream:
        coloured.add(piece.token_ids, piece.origins)
        for text, origin in coloured.spans(piece.text):
            console.print(Text(for_terminal(text), STYLES[origin]), end="")
