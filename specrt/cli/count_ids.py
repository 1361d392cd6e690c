"""``count-ids``: which ids a text has most often, for a draft head that guesses only those."""

from __future__ import annotations

import argparse
from pathlib import Path

from specrt.cli import flags
from specrt.errors import OptionError

HELP = "print a text's most frequent ids, for --draft-ids"
NUM_IDS = 8192


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of this command."""
    parser.add_argument(
        "text", nargs="+", metavar="TEXT", help="files of text like what is written"
    )
    parser.add_argument("--model", metavar="FILE", help=flags.MODEL_HELP)
    parser.add_argument(
        "--ids",
        type=int,
        default=NUM_IDS,
        metavar="N",
        help=f"how many, at most (default: {NUM_IDS})",
    )


def run(args: argparse.Namespace) -> int:
    """One id a line, the most frequent first."""
    from specrt.drafters.draft_ids import most_frequent
    from specrt.gguf.reader import open_gguf
    from specrt.gguf.tokenizer import load_tokenizer
    from specrt.llm import find_model

    if args.ids < 1:
        raise OptionError(f"--ids = {args.ids}: expected 1 or more")
    try:
        texts = [Path(name).read_text(encoding="utf-8") for name in args.text]
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(f"{error}: expected files of UTF-8 text") from None
    with open_gguf(find_model(args.model)) as gguf:
        tokenizer = load_tokenizer(gguf)
        ids = [token for text in texts for token in tokenizer.encode(text, add_bos=False)]
    print(*most_frequent(ids, args.ids), sep="\n")
    return 0
