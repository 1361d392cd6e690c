"""``python -m tools.train_tiny COMMAND --work DIR``; the README says in which order."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch

from specrt.assets import FAMILY
from tools.train_tiny import corpus, draft, export, golden, texts, train, tune
from tools.train_tiny.compare import compare
from tools.train_tiny.gguf_file import QTYPES
from tools.train_tiny.model import Config

TRUNK_STEPS, TUNE_STEPS, TEXT_BATCHES, TEXTS = 1830, 430, 9, 384
DRAFT_STEPS, DRAFT_TEXTS = 1200, 16
COMPARED = 300
"""Ids over which logits are compared."""


def run_corpus(args: argparse.Namespace) -> None:
    """Texts and tokenizer."""
    documentation = corpus.documentation(args.docs) if args.docs else ()
    files = chain(corpus.standard_library(), documentation)
    print(json.dumps(corpus.build(args.work, files, Config().vocab_size), indent=1))


def run_trunk(args: argparse.Namespace) -> None:
    """Trunk and NextN block, from scratch."""
    train.train(args.work, Config(), **_steps_of(args))


def _steps_of(args: argparse.Namespace) -> dict[str, Any]:
    return {name: getattr(args, name) for name in ("steps", "batch", "seed", "held")}


def run_texts(args: argparse.Namespace) -> None:
    """What the trunk writes."""
    texts.write(args.work, batches=args.batches, batch=args.batch, seed=args.seed)


def run_tune(args: argparse.Namespace) -> None:
    """The NextN block alone."""
    tune.tune(args.work, **_steps_of(args))


def run_draft(args: argparse.Namespace) -> None:
    """A block drafter for the trunk, from scratch."""
    names = ("steps", "minutes", "batch", "seed")
    options = {name: getattr(args, name) for name in names}
    draft.train(args.work, args.kind, draft.KINDS[args.kind][1](), **options)


def run_export(args: argparse.Namespace) -> None:
    """A file of each type; stdout gets what is known of the training, and the trunk's id."""
    trunk, about = train.load(args.work)
    tokenizer = args.work / "tokenizer.json"
    if args.kind is None:
        for qtype in QTYPES:
            export.export(trunk, tokenizer, args.work / f"{FAMILY}-{qtype}.gguf", qtype)
    else:
        drafter, about = draft.load(args.work, args.kind)
        for qtype in QTYPES:
            path = args.work / f"{FAMILY}-{args.kind}-{qtype}.gguf"
            export.export_drafter(drafter, args.kind, trunk, tokenizer, path, qtype)
    print(json.dumps(about | {"model_id": export.model_id(trunk)}, indent=1))


def run_compare(args: argparse.Namespace) -> None:
    """Torch beside specrt, over held-out ids."""
    ids = np.load(args.work / "held_lib.npy")[:COMPARED].tolist()
    print(json.dumps(asdict(compare(args.model, ids)), indent=1))


def run_golden(args: argparse.Namespace) -> None:
    """Logits and drafts of a file in torch, for the tests."""
    golden.write(args.model, json.loads(args.ids.read_text())["ids"], args.out)


def parser() -> argparse.ArgumentParser:
    """The commands and their flags."""
    whole = argparse.ArgumentParser(prog="python -m tools.train_tiny", description=__doc__)
    commands = whole.add_subparsers(required=True)

    def add(name: str, run: object) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=run.__doc__, description=run.__doc__)
        command.set_defaults(run=run)
        command.add_argument("--work", type=Path, default=Path("work"), help="folder of all files")
        command.add_argument("--seed", type=int, default=0)
        command.add_argument("--threads", type=int, default=2)
        return command

    add("corpus", run_corpus).add_argument("--docs", type=Path, help="folder of .rst[.txt] files")
    for name, run, steps in (("trunk", run_trunk, TRUNK_STEPS), ("tune", run_tune, TUNE_STEPS)):
        command = add(name, run)
        command.add_argument("--steps", type=int, default=steps)
        command.add_argument("--batch", type=int, default=8, help="windows or texts of a step")
        command.add_argument("--held", type=int, metavar="N", help="held-out windows of a kind")
    command = add("texts", run_texts)
    command.add_argument("--batches", type=int, default=TEXT_BATCHES)
    command.add_argument("--batch", type=int, default=TEXTS, help="texts written at a time")
    command = add("draft", run_draft)
    command.add_argument("--kind", choices=draft.KINDS, required=True)
    command.add_argument("--steps", type=int, default=DRAFT_STEPS)
    command.add_argument("--minutes", type=float, help="train so long, whatever --steps says")
    command.add_argument("--batch", type=int, default=DRAFT_TEXTS, help="texts of a step")
    command = add("export", run_export)
    command.add_argument("--kind", choices=draft.KINDS, help="a drafter (default: the trunk)")
    add("compare", run_compare).add_argument("--model", type=Path, required=True)
    command = add("golden", run_golden)
    for flag in ("--model", "--ids", "--out"):
        command.add_argument(flag, type=Path, required=True)
    return whole


def main() -> None:
    """Run a command."""
    args = parser().parse_args()
    torch.set_num_threads(args.threads)
    args.run(args)


if __name__ == "__main__":
    main()
