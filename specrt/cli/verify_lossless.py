"""``verify-lossless``: is the result with speculation bitwise that of plain decoding, here?"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

import numpy as np

from specrt.cli import flags
from specrt.options import SpecOptions

if TYPE_CHECKING:
    from specrt.llm import LLM
    from specrt.lossless import Cell

HELP = "check that speculation changes nothing but the speed"
TOKENS = 48
IDS = 40
PROMPTS = {
    "prose": "Describe a walk along a river in autumn, in a few sentences.",
    "copy": "Write this again, word for word: The ferry leaves at six, the ferry returns at "
    "nine, and between six and nine the harbour sleeps. The ferry leaves at six.",
    "code": "Write a Python function that returns the sum of the squares of a list.",
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
    return report(cells, spec, Console())


def prompts(llm: LLM) -> dict[str, list[int]]:
    """The built-in prompts' ids; seeded random ones where the file has no text."""
    from specrt.generate import chat_ids

    if llm.tokenizer.has_text:
        return {
            name: chat_ids(llm.tokenizer, llm.chat_template, [{"role": "user", "content": text}])
            for name, text in PROMPTS.items()
        }
    random = np.random.default_rng(0)
    return {name: random.integers(0, llm.target.vocab_size, IDS).tolist() for name in PROMPTS}


def report(cells: list[Cell], spec: SpecOptions, console: Any) -> int:
    """Print a table and the verdict; the exit status."""
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
        named = cell.drafter if cell.num_draft else f"{spec.type}, as loaded"
        counts = [str(count) for count in (cell.none, cell.partial, cell.whole)]
        verdict = "[green]same[/]" if cell.difference is None else "[bold red]differ[/]"
        if cell.num_draft and not cell.covered:
            verdict += " (not all outcomes seen)"
        if previous not in (None, cell.setting):
            table.add_section()
        first = cell.setting if cell.setting != previous else ""
        table.add_row(first, named, str(cell.num_draft or "any"), *counts, verdict)
        previous = cell.setting
    console.print(table)
    wrong = next((cell for cell in cells if cell.difference is not None), None)
    if wrong is not None:
        where = f"{wrong.setting}, {wrong.drafter}, K = {wrong.num_draft or 'any'}"
        console.print(f"[bold red]differs from plain[/]: {where}", highlight=False)
        console.print(str(wrong.difference), markup=False, highlight=False)
        return 1
    windows = sum(cell.none + cell.partial + cell.whole for cell in cells)
    same = "ids, text, end and logprobs as plain"
    console.print(f"[green]lossless[/]: {windows} windows in {len(cells)} cells, {same}")
    return 0
