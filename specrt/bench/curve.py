"""The row-cost curve: what a verify of T rows takes, and what a draft must land to pay."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from specrt.bench.arguments import add_contexts, add_json, contexts_for, positive
from specrt.bench.costs import row_seconds
from specrt.bench.governor_checks import forced_steps
from specrt.bench.report import check_writable, collect, number, save, show
from specrt.bench.timing import machine, model_file
from specrt.cli import flags
from specrt.errors import OptionError, UnsupportedError
from specrt.gguf.reader import open_gguf
from specrt.llm import LLM, find_model, load
from specrt.models import check_architecture
from specrt.models.loader import Dims
from specrt.options import MAX_DRAFT, SpecOptions
from specrt.settings import DEVICE, GRAPH_BUDGET, KV_TYPE, THREADS

COPIED_TOKENS = 512
"""Of a text that repeats itself, from which the governor learns."""


@dataclass(frozen=True, slots=True)
class Curve:
    """A verify of T = 1, 2 .. rows behind ``cached`` tokens.

    Args:
        milliseconds: median, for each T.
        break_even: the acceptance of a token from which a draft of K = T - 1 just pays, None where
            none does.
        governor_ms: what the governor takes it to cost after a run of its own; None where it did
            not run.
    """

    cached: int
    milliseconds: list[float]
    break_even: list[float | None]
    governor_ms: list[float] | None


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The flags of this benchmark."""
    parser.add_argument("--model", metavar="FILE", help="a GGUF file, or a name that was pulled")
    add_contexts(parser)
    parser.add_argument(
        "--rows", type=positive, default=33, metavar="T", help="of the largest verify (default: 33)"
    )
    parser.add_argument(
        "--rounds", type=positive, default=9, metavar="N", help="samples of each (default: 9)"
    )
    parser.add_argument("--png", type=Path, metavar="FILE", help="draw it there")
    flags.add_settings(parser, "model", [THREADS, KV_TYPE, DEVICE, GRAPH_BUDGET])
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Measure, print, draw and save.

    Raises:
        SpecrtError: a flag or the model is impossible, or nothing can draw.
    """
    check_writable(args.json)
    check_writable(args.png, "--png")
    if args.png is not None and find_spec("matplotlib") is None:
        raise UnsupportedError(
            "--png needs matplotlib, which is not here: pip install matplotlib, or specrt[bench]"
        )
    if not 2 <= args.rows <= MAX_DRAFT + 1:
        raise OptionError(f"--rows {args.rows}: expected 2 to {MAX_DRAFT + 1}")
    path = find_model(args.model)
    with open_gguf(path) as gguf:
        check_architecture(gguf)
        contexts = contexts_for(gguf, args.contexts, args.rows)
        to_learn = min(contexts[0] + COPIED_TOKENS, Dims.read(gguf).context)
        context = max(max(contexts) + args.rows, to_learn)
    llm = load(
        path,
        device=args.device or "auto",
        context=context,
        kv_type=args.kv_type or "f16",
        spec="none",
        threads=args.threads,
        graph_budget=args.graph_budget,
        max_sequences=2,
        verbose=False,
    )
    curves, complete = collect(measure(llm, contexts, args.rows, args.rounds))
    show_curves(curves)
    if args.png is not None and curves:
        draw(args.png, curves, llm.path.name)
    content = {
        "bench": "curve",
        "complete": complete,
        "machine": machine(args.threads),
        "model": model_file(llm.path),
        "settings": {
            "rows": args.rows,
            "rounds": args.rounds,
            "kv_type": llm.target.kv_type,
            "device": llm.target.ops.device,
        },
        "curves": curves,
    }
    save(args.json, content)
    return 0 if complete else 130


def measure(llm: LLM, contexts: Sequence[int], rows: int, rounds: int) -> Iterator[Curve]:
    """A curve behind each context; the governor learns behind the first."""
    for cached in contexts:
        seconds = row_seconds(llm, rows, cached, rounds)
        learned = governor_seconds(llm, cached, rows) if cached == contexts[0] else []
        yield Curve(
            cached=cached,
            milliseconds=(seconds * 1e3).tolist(),
            break_even=break_evens(seconds),
            governor_ms=[one * 1e3 for one in learned] or None,
        )


def break_evens(seconds: np.ndarray) -> list[float | None]:
    """For each T the acceptance a of a token with which a draft of T - 1 tokens just pays.

    1 + a + a^2 .. + a^(T - 1) = c(T) / c(1): as many tokens as plain steps would emit meanwhile.

    Args:
        seconds: [T] float64, c.
    """
    return [break_even(float(one / seconds[0]), rows) for rows, one in enumerate(seconds, 1)]


def break_even(steps: float, rows: int) -> float | None:
    """The acceptance with which a step of so many rows emits as much as so many plain steps.

    None if all T tokens are too few.
    """
    if steps > rows:
        return None
    powers, low, high = np.arange(rows), 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if (middle**powers).sum() < steps else (low, middle)
    return high if steps > 1 else 0.0


def governor_seconds(llm: LLM, cached: int, rows: int) -> list[float]:
    """What the governor has learned of a text whose n-gram drafts all land.

    Args:
        cached: tokens of its prompt.
        rows: of the largest verify.

    Returns:
        Seconds of 1 .. ``rows`` rows.
    """
    prompt = np.random.default_rng(0).integers(0, llm.target.vocab_size, cached).tolist()
    length = min(cached + COPIED_TOKENS, llm.context)
    text = (prompt * (1 + -(-COPIED_TOKENS // cached)))[:length]
    spec = SpecOptions(type="ngram", num_draft=rows - 1)
    for _ in forced_steps(llm, text, cached, spec):
        pass
    curve = llm.speculation.resolve(spec).policy().rows
    assert curve is not None  # only a governor that is off has none
    return [curve.at(size) for size in range(rows)]


def show_curves(curves: Sequence[Curve]) -> None:
    """A line for each T, and columns for each context."""
    for curve in curves:
        learned: Sequence[float | None] = curve.governor_ms or [None] * len(curve.milliseconds)
        show(
            f"A verify of T rows behind {curve.cached} tokens, and the acceptance of a token from "
            "which a draft of K = T - 1 pays",
            ("T", "ms", "plain steps", "acceptance", *(["governor ms"] * bool(curve.governor_ms))),
            [
                (
                    str(rows),
                    number(ms, 3),
                    number(ms / curve.milliseconds[0]),
                    ("never" if pays is None else number(pays, 3)) if rows > 1 else "",
                    *([number(own, 3)] * bool(curve.governor_ms)),
                )
                for rows, (ms, pays, own) in enumerate(
                    zip(curve.milliseconds, curve.break_even, learned, strict=True), 1
                )
            ],
        )


def draw(path: Path, curves: Sequence[Curve], title: str) -> None:
    """Milliseconds and acceptance over T, as PNG."""
    from matplotlib.figure import Figure  # of the extra `bench`

    figure = Figure(figsize=(11, 4.5), layout="constrained")
    figure.suptitle(title)
    time, acceptance = figure.subplots(1, 2)
    for curve in curves:
        label = f"behind {curve.cached} tokens"
        rows = range(1, len(curve.milliseconds) + 1)
        (line,) = time.plot(rows, curve.milliseconds, ".-", label=label)
        if curve.governor_ms is not None:
            color = line.get_color()
            time.plot(rows, curve.governor_ms, ":", color=color, label=f"{label}, governor's own")
        pays = [np.nan if one is None else one for one in curve.break_even]
        acceptance.plot(rows[1:], pays[1:], ".-", label=label)
    time.set_ylabel("time of a verify [ms]")
    acceptance.set_ylabel("acceptance of a token from which K = T - 1 pays [1]")
    acceptance.set_ylim(0, 1)
    time.set_ylim(bottom=0)
    for axes in (time, acceptance):
        axes.set_xlabel("rows of a verify T [1]")
        axes.grid(alpha=0.3)
        axes.legend()
    figure.savefig(path, format="png", dpi=150)
