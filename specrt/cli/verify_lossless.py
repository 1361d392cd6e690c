"""``verify-lossless``: is the result with speculation bitwise that of plain decoding, here?"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

import numpy as np

from specrt.cli import flags

if TYPE_CHECKING:
    from specrt.llm import LLM
    from specrt.lossless import Cell

HELP = "check that speculation changes nothing but the speed"
TOKENS = 48
IDS = 40
FERRY = "The ferry leaves at six, the ferry returns at nine, and in between the harbour sleeps."
PROMPTS = {
    "prose": ["Describe a walk along a river in autumn, in a few sentences."],
    # Where the answer begins, what came before begins too: n-grams propose at once.
    "copy": [f"Write this again: {FERRY}", FERRY, f"Write this again: {FERRY}"],
    "code": ["Write a Python function that returns the sum of the squares of a list."],
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of this command."""
    flags.add_model(parser)
    parser.add_argument(
        "-n",
        "--tokens",
        type=int,
        default=TOKENS,
        metavar="N",
        help=f"of an answer (default: {TOKENS})",
    )
    flags.add_speculation(parser)


def run(args: argparse.Namespace) -> int:
    """Print the matrix; 1 if any cell differs from plain decoding."""
    from rich.console import Console
    from rich.progress import track

    from specrt.lossless import LosslessCheck

    spec = flags.spec_from(args)
    llm = flags.load_model(args, spec=spec)
    check = LosslessCheck(llm, prompts(llm), args.tokens, spec)
    progress = Console(stderr=True)
    cells = list(
        track(check.cells(), "comparing", total=len(check), console=progress, transient=True)
    )
    return report(cells, [f"{d.name}: {d.reason}" for d in llm.declined(spec)], Console())


def prompts(llm: LLM) -> dict[str, list[int]]:
    """The built-in chats' ids; seeded random ones, twice over, where the file has no text."""
    from specrt.generate import chat_ids

    if llm.tokenizer.has_text:
        return {
            name: chat_ids(llm.tokenizer, llm.chat_template, messages(turns))
            for name, turns in PROMPTS.items()
        }
    random = np.random.default_rng(0)
    return {name: 2 * random.integers(0, llm.target.vocab_size, IDS).tolist() for name in PROMPTS}


def messages(turns: list[str]) -> list[dict[str, str]]:
    """The user's and the assistant's by turns."""
    return [
        {"role": ("user", "assistant")[number % 2], "content": text}
        for number, text in enumerate(turns)
    ]


def report(cells: list[Cell], declined: list[str], console: Any) -> int:
    """Print a table, who declined, and the verdict; the exit status."""
    console.print(_table(cells))
    for line in declined:
        console.print(f"declined: {line}", markup=False, highlight=False)
    wrong = next((cell for cell in cells if cell.difference is not None), None)
    if wrong is not None:
        where = f"{wrong.setting}, {wrong.drafter}, K = {wrong.num_draft or 'any'}"
        console.print(f"[bold red]differs from plain[/]: {where}", highlight=False)
        console.print(str(wrong.difference), markup=False, highlight=False)
        return 1
    console.print(verdict(cells), highlight=False, soft_wrap=True)
    return 0


def verdict(cells: list[Cell]) -> str:
    """What cells without a difference have shown, and how many did not see all they were to see."""
    windows, missed = sum(cell.windows for cell in cells), [c for c in cells if not c.covered]
    line = f"{windows} windows in {len(cells)} cells, ids, text, end and logprobs as plain"
    if not missed:
        return f"[green]lossless[/]: {line}; every cell saw every outcome"
    why = "a longer answer (-n) shows more"
    return (
        f"[yellow]lossless as far as seen[/]: {line}; {len(missed)} of {len(cells)} cells missed "
        f"an outcome, see above ({why})"
    )


def _table(cells: list[Cell]) -> Any:
    from rich.table import Table

    table = Table(
        "tokens",
        "drafter",
        title="windows by K draft tokens, m of them accepted",
        title_justify="left",
    )
    for label in ("K", "m = 0", "0 < m < K", "m = K"):
        table.add_column(label, justify="right")
    table.add_column("result")
    previous = None
    for cell in cells:
        counts = [str(count) for count in (cell.none, cell.partial, cell.whole)]
        result = "[green]same[/]" if cell.difference is None else "[bold red]differ[/]"
        if cell.missed:
            result += f" [yellow]({'; '.join(cell.missed)})[/]"
        if previous not in (None, cell.setting):
            table.add_section()
        first = cell.setting if cell.setting != previous else ""
        table.add_row(first, cell.drafter, str(cell.num_draft or "any"), *counts, result)
        previous = cell.setting
    return table
