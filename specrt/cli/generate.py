"""``specrt generate``: complete one prompt, streaming."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from specrt.cli.flags import (
    add_model_flags,
    add_sampling_flags,
    checked_prompt,
    load_options,
    sampling_params,
)
from specrt.cli.summary import summary
from specrt.stats import Origin

if TYPE_CHECKING:
    from specrt.generate import Stream

STYLES: dict[Origin, str] = {
    "accepted": "black on green",
    "corrected": "black on yellow",
    "bonus": "black on cyan",
    "plain": "default",
}


def add_parser(commands: argparse._SubParsersAction) -> None:
    """Describe the command."""
    parser = commands.add_parser(
        "generate",
        help="complete a prompt",
        description="Complete a prompt. The model's chat template is applied if it has one.",
    )
    add_model_flags(parser)
    parser.add_argument("-p", "--prompt", help="the text")
    parser.add_argument("--raw", action="store_true", help="continue the text, without a template")
    parser.add_argument(
        "--show-drafts", action="store_true", help="colour each token by where it came from"
    )
    add_sampling_flags(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Load, stream the answer to stdout, and say on stderr how it went."""
    import specrt
    from specrt.generate import chat_ids

    prompt, params = checked_prompt(args.prompt), sampling_params(args)
    llm = specrt.load(args.model, **load_options(args))
    ids: str | list[int] = prompt
    if not args.raw and not llm.chat_template.is_raw:
        messages = [{"role": "user", "content": prompt}]
        ids = chat_ids(llm.tokenizer, llm.chat_template, messages)
    stream = llm.stream(ids, params)
    with stream:
        if args.show_drafts:
            show_drafts(stream, llm.tokenizer)
        else:
            show(stream)
    print(summary(stream.stats), file=sys.stderr)
    return 0


def show(stream: Stream) -> str:
    """Write the pieces to stdout as they come; the whole text."""
    text = ""
    for piece in stream:
        sys.stdout.write(piece.text)
        sys.stdout.flush()
        text += piece.text
    sys.stdout.write("\n")
    sys.stdout.flush()
    return text


def show_drafts(stream: Stream, tokenizer: object) -> None:
    """Write each token in its origin's colour, with a legend."""
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=True)
    legend = Text("")
    for origin, style in STYLES.items():
        legend.append(f" {origin} ", style)
        legend.append(" ")
    console.print(legend)
    for piece in stream:
        for token, origin in zip(piece.token_ids, piece.origins, strict=True):
            raw = tokenizer.token_bytes(token)  # type: ignore[attr-defined]
            console.print(Text(raw.decode(errors="replace"), STYLES[origin]), end="")
    console.print()
