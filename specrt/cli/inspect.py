"""``inspect``: what a file holds, and whether it runs here."""

from __future__ import annotations

import argparse
import os
from contextlib import nullcontext
from typing import TYPE_CHECKING

from specrt.cli import flags
from specrt.errors import SpecrtError
from specrt.settings import CONTEXT, DEVICE, DRAFT_MODEL, KV_TYPE, draft_model_for

if TYPE_CHECKING:
    from specrt.gguf.reader import GGUFFile

HELP = "say what a GGUF file holds"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of this command."""
    flags.add_file(parser)
    flags.add_settings(parser, "memory plan", (DRAFT_MODEL, CONTEXT, KV_TYPE, DEVICE))


def run(args: argparse.Namespace) -> int:
    """Print the tables; a file that cannot be run is described all the same."""
    from specrt.drafters import WIDTH_KEYS
    from specrt.gguf.reader import open_gguf
    from specrt.inspect import inspect
    from specrt.llm import find_model
    from specrt.ops import cuda_problem

    path = find_model(args.model)
    with open_gguf(path) as gguf:
        architecture = str(gguf.metadata.get("general.architecture"))
        named, drafter = args.draft_model, None
        if named is None and architecture not in WIDTH_KEYS:
            named = draft_model_for(architecture)
        try:
            drafter = find_model(named) if named else None
            plan = _plan(gguf, drafter, args)
            problem = cuda_problem() if args.device == "cuda" else None
            rows = [("runs here", f"no: {problem}" if problem else "yes"), *plan]
        except SpecrtError as error:
            rows = [("runs here", f"no: {error}")]
    inspect(path, drafter, plan=rows)
    return 0


def _plan(
    gguf: GGUFFile, drafter: str | os.PathLike[str] | None, args: argparse.Namespace
) -> list[tuple[str, str]]:
    """Rows of the memory plan.

    Raises:
        SpecrtError: the model, or the drafter for it, does not run here.
    """
    from specrt.devices import best_device
    from specrt.drafters import check_drafter
    from specrt.gguf.reader import open_gguf
    from specrt.memory import memory_plan
    from specrt.models import check_architecture

    check_architecture(gguf)
    device = args.device or "auto"
    if device == "auto":
        device = best_device()
    with nullcontext(gguf) if drafter is None else open_gguf(drafter) as head:
        if head is not gguf:
            check_drafter(gguf, head)
        return memory_plan(
            gguf, args.context, args.kv_type or "f16", device=device, head=head
        ).rows()
