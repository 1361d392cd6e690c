"""``python -m specrt.bench [e2e|ops|host]``: figures of this machine, never for a wrong result."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.progress import track

from specrt.bench import e2e, host, ops, report
from specrt.bench.cases import NUM_PAIRS, NUM_ROWS, NUM_TOKENS, prompts
from specrt.bench.machine import describe_machine, describe_model
from specrt.bench.timing import WrongResultError, peak_memory
from specrt.cli import flags
from specrt.errors import OptionError, SpecrtError

EXIT_WRONG, EXIT_ERROR, EXIT_INTERRUPTED, EXIT_BROKEN_PIPE = 1, 2, 130, 141


def parser() -> flags.Parser:
    """The flags."""
    whole = flags.Parser(prog="python -m specrt.bench", description="Measure, after checking.")
    whole.add_argument("what", nargs="?", default="e2e", choices=("e2e", "ops", "host"))
    whole.add_argument(
        "--model", metavar="PATH", help="a file or a pulled model (default: smollm2-135m)"
    )
    whole.add_argument("--json", metavar="FILE", help="write the figures there too")
    group = whole.add_argument_group("e2e")
    group.add_argument("--prompts", metavar="ID,ID", help="some of the fixed prompts")
    group.add_argument("--tokens", type=int, default=NUM_TOKENS, metavar="N", help="of an answer")
    group.add_argument("--pairs", type=int, default=NUM_PAIRS, metavar="N", help="runs of each")
    group.add_argument("--turns", type=int, default=1, metavar="N", help="of a conversation")
    group.add_argument("--ignore-eos", action="store_true", help="go on behind an end token")
    group = whole.add_argument_group("ops")
    group.add_argument("--rows", metavar="T,T", help="rows of a step (default: 1,4,9)")
    flags.add_settings(whole, "model", flags.MODEL)
    flags.add_speculation(whole)
    return whole


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print.

    Returns:
        0; 1 after a wrong result; 2 after an error; 130 after Ctrl-C.
    """
    try:
        args = parser().parse_args(arguments)
        run = {"e2e": run_e2e, "ops": run_ops, "host": run_host}[args.what]
        figures = run(args, Console())
        if args.json:
            whole = {"kind": args.what, "machine": describe_machine(), **figures}
            report.write_json(args.json, whole)
        return 0
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_BROKEN_PIPE
    except WrongResultError as error:
        print(f"wrong: {error}", file=sys.stderr)
        return EXIT_WRONG
    except (SpecrtError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_ERROR
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def run_e2e(args: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Plain and speculative decoding of the prompts."""
    spec = flags.spec_from(args)
    if spec.type == "none":
        raise OptionError(
            "speculation is off: expected a speculator to compare with plain decoding"
        )
    for name in ("tokens", "pairs", "turns"):
        if getattr(args, name) < 1:
            raise OptionError(f"--{name} = {getattr(args, name)}: expected an integer >= 1")
    chosen = (
        prompts(name.strip() for name in args.prompts.split(",")) if args.prompts else prompts()
    )
    options = e2e.Options(args.tokens, args.pairs, args.turns, args.ignore_eos)
    llm = flags.load_model(args, spec=spec, verbose=False)
    report.heading(console, describe_machine(), describe_model(llm))
    e2e.warm_up(llm, chosen[0], spec)
    rows: list[e2e.Row] = []
    for prompt in _tracked(chosen, f"{args.pairs} pairs of each prompt"):
        rows += e2e.measure(llm, prompt, spec, options)
    for table in report.e2e_tables(rows):
        console.print(table)
    console.print(report.e2e_footer(rows), markup=False, highlight=False)
    return {
        "model": describe_model(llm),
        "speculation": {"type": spec.type, "num_draft": spec.num_draft, "pmin": spec.pmin},
        "tokens": args.tokens,
        "pairs": args.pairs,
        "turns": args.turns,
        "ignore_eos": args.ignore_eos,
        "peak_memory": peak_memory(),
        "rows": [row.as_json() for row in rows],
    }


def run_ops(args: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Every op over the model's shapes."""
    llm = flags.load_model(args, verbose=False)
    report.heading(console, describe_machine(), describe_model(llm))
    counts = _integers(args.rows) if args.rows else NUM_ROWS
    cases = [case for count in counts for case in ops.op_cases(llm.gguf, count)]
    rows = [ops.measure(case, llm.target.ops) for case in _tracked(cases, "ops")]
    table = report.table("ops, each equal to the reference", ("op", "case"), ("rows", "µs", "GB/s"))
    for row in rows:
        speed = f"{row.bytes_per_second / 1e9:.1f}"
        case = row.case
        table.add_row(case.op, case.label, str(case.num_rows), f"{1e6 * row.seconds:.1f}", speed)
    console.print(table)
    return {"model": describe_model(llm), "rows": [row.as_json() for row in rows]}


def run_host(args: argparse.Namespace, console: Console) -> dict[str, Any]:
    """What a step does outside the model."""
    report.heading(console, describe_machine(), None)
    rows = list(_tracked(host.measure(), "host"))
    table = report.table("outside the model", ("what", "case"), ("median µs", "p99.9 µs"))
    for row in rows:
        table.add_row(row.name, row.case, f"{1e6 * row.median:.2f}", f"{1e6 * row.p999:.2f}")
    console.print(table)
    return {"rows": [row.as_json() for row in rows]}


def _tracked(items: Any, title: str) -> Any:
    return track(items, title, console=Console(stderr=True), transient=True)


def _integers(text: str) -> tuple[int, ...]:
    try:
        values = tuple(int(part) for part in text.split(","))
    except ValueError:
        values = ()
    if not values or not all(1 <= value <= ops.HISTORY for value in values):
        raise OptionError(f"--rows = {text!r}: expected integers from 1 to {ops.HISTORY}")
    return values


if __name__ == "__main__":
    sys.exit(main())
