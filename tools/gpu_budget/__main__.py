"""Print the tables, or put them into a page."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from specrt.bench.compilers import find_compiler, find_disassembler
from tools.gpu_budget import __doc__ as about
from tools.gpu_budget import tables
from tools.gpu_budget.cards import CARDS
from tools.gpu_budget.files import drafter_file, target_file
from tools.gpu_budget.published import ACCEPTED
from tools.gpu_budget.steps import Model, State, Step

CACHED = 4096
"""Tokens that the sequence has consumed."""
DRAFT_IDS = 32_768
"""That a NextN head with draft ids drafts among."""
PLACE = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", re.S)


def budget(cached: int = CACHED) -> tuple[dict[str, Step], dict[str, str]]:
    """The steps by name; and the tables that need no compiler."""
    target, drafter = target_file(), drafter_file()
    model = Model(target, cached)
    nextn = model.head(target)
    states: list[State] = [*model.states(), *model.head_states("NextN", nextn)]
    steps = [
        model.verify("plain", 1),
        model.verify("verify T = 4", 4, nextn.taps),
        model.draft("NextN draft 3", nextn, 3),
        model.draft("NextN draft 7", nextn, 7),
    ]
    few = model.head(target, DRAFT_IDS)
    steps.append(model.draft(f"NextN draft 3 of {DRAFT_IDS} ids", few, 3))
    dflash = model.head(drafter)
    states += model.head_states("DFlash2", dflash)
    steps.insert(2, model.verify("verify T = 8", 8, dflash.taps))
    steps.append(model.draft("DFlash2 draft 7", dflash, 7))
    by_name = {step.name: step for step in steps}
    return by_name, {
        "cards": tables.cards_table(),
        "card_sources": tables.sources((card.name, card.source) for card in CARDS),
        "files": tables.files_table(target, drafter),
        "states": tables.states_table(states),
        "steps": tables.steps_table(steps, cached),
        "speedups": tables.speedups_table(by_name, partial(tables.floor_ms, cached=cached)),
        "published": tables.sources(
            (f"{one.drafter}, {one.num_draft} drafts", one.source) for one in ACCEPTED
        ),
    }


def code_tables(steps: Mapping[str, Step]) -> dict[str, str]:
    """Those of compiled code; none without a compiler and a disassembler."""
    compiler, disassembler = find_compiler(), find_disassembler()
    if compiler is None or disassembler is None:
        return {}
    modules = list(tables.modules_of(steps.values()))
    codes = tables.all_codes(compiler, disassembler, modules)
    return {
        "compiler": f"Compiled by {compiler.version()}.",
        "gaps": tables.gaps_table(steps, CACHED, codes),
        "kept": tables.speedups_table(
            steps, partial(tables.kernels_ms, cached=CACHED, codes=codes)
        ),
        "path": tables.path_table(steps, codes),
        "others": tables.others_table(steps.values(), codes),
    }


def page(text: str, content: Mapping[str, str]) -> str:
    """The page with its tables in their places; those that are not known stay."""

    def put(found: re.Match[str]) -> str:
        begin, name, end = found.groups()
        return f"{begin}\n{content[name]}\n\n{end}" if name in content else found[0]

    return PLACE.sub(put, text)


def main() -> None:
    """Read the arguments and do it."""
    parser = argparse.ArgumentParser(prog="python -m tools.gpu_budget", description=about)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the tables there")
    args = parser.parse_args()
    steps, content = budget()
    content |= (coded := code_tables(steps))
    if not coded:
        print("no compiler, or no nvdisasm: the tables of code are left out", file=sys.stderr)
    if args.write is None:
        for name, text in content.items():
            print(f"{name}\n\n{text}\n")
    else:
        args.write.write_text(page(args.write.read_text(), content))


if __name__ == "__main__":
    main()
