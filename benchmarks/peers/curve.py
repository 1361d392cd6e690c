"""Measure what the file's own draft head costs and gains specrt and llama.cpp by acceptance."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from benchmarks.peers.build import built_server
from benchmarks.peers.cases import Cases
from benchmarks.peers.contestants import OWN
from benchmarks.peers.engine import PLAIN, Engine, PeerError
from benchmarks.peers.engines import own_synthetic
from benchmarks.peers.engines.llama_cpp import LlamaCpp, synthetic_type
from benchmarks.peers.gains import Point, gains, show_costs, show_gains, step_ms
from benchmarks.peers.measure import Contestant, Plan, Sample, one_pass
from benchmarks.peers.summary import lossless
from benchmarks.peers.worker import PythonEngine
from specrt.bench.arguments import add_json, positive, positive_number, positives, shares
from specrt.bench.report import check_writable, save
from specrt.bench.timing import Spread, machine, model_file
from specrt.cli import flags
from specrt.errors import OptionError
from specrt.host.machine import choose_threads
from specrt.llm import find_model
from specrt.options import MAX_DRAFT
from specrt.settings import THREADS

CACHED, TOKENS, CONTEXT = 128, 64, 512
"""Ids of a prompt, of its answer, and positions of a sequence."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The flags of this command."""
    parser.add_argument("--model", metavar="FILE", help=flags.MODEL_HELP)
    flags.add_settings(parser, "model", (THREADS,))
    add_json(parser)
    parser.add_argument(
        "--acceptance", type=shares, default=[0.5, 0.7, 0.9], metavar="A[,A]",
        help="of a draft token (default: 0.5,0.7,0.9)",
    )  # fmt: skip
    parser.add_argument(
        "--num-draft", type=positive, default=3, metavar="K", help="with these (default: 3)"
    )
    parser.add_argument(
        "--rows", type=positives, default=[2, 3, 4, 8], metavar="T[,T]",
        help="of the steps whose cost is measured with wrong drafts (default: 2,3,4,8)",
    )  # fmt: skip
    parser.add_argument("--rounds", type=positive, default=3, metavar="N", help="(default: 3)")
    parser.add_argument("--llama-server", type=Path, metavar="FILE", help="in place of our build")
    parser.add_argument(
        "--start-seconds", type=positive_number, default=120.0, metavar="S", help="to come up in"
    )


def run(args: argparse.Namespace) -> int:
    """Measure, print and save.

    Raises:
        SpecrtError: a flag, the model or an engine is impossible.
        WrongResultError: speculation changed an answer of ours; nothing is told.
    """
    check_writable(args.json)
    if min(args.rows) < 2 or max(*args.rows, args.num_draft + 1) > MAX_DRAFT + 1:
        raise OptionError(f"--rows, --num-draft: expected steps of 2 to {MAX_DRAFT + 1} rows")
    path = Path(find_model(args.model))
    costs = [Point(rows - 1, 0.0) for rows in args.rows]
    asked = [Point(args.num_draft, acceptance) for acceptance in args.acceptance]
    points = list(dict.fromkeys(costs + asked))
    engines = make_engines(args, path, points)
    drafting = {
        Contestant(engine.name, engine.speculations[index]): point
        for index, point in enumerate(points)
        for engine in engines
    }
    samples = list(lossless(measure(engines, drafting, Cases(path), args.rounds), OWN))
    found = gains(samples, drafting)
    plain = {engine.name: _plain_ms(samples, engine.name) for engine in engines}
    show_costs(plain, [gain for gain in found if gain.point in costs])
    show_gains([gain for point in asked for gain in found if gain.point == point])
    content = {
        "bench": "peers curve",
        "machine": machine(args.threads),
        "model": model_file(path),
        "settings": {
            "cached": CACHED,
            "tokens": TOKENS,
            "context": CONTEXT,
            "rounds": args.rounds,
            "num_draft": args.num_draft,
            "acceptance": args.acceptance,
        },
        "engines": {engine.name: engine.about() for engine in engines},
        "plain_ms": plain,
        "gains": found,
    }
    save(args.json, content)
    return 0


def make_engines(args: argparse.Namespace, path: Path, points: Sequence[Point]) -> list[Engine]:
    """specrt and llama.cpp, each with a mode for every point.

    Raises:
        PeerError: llama-server is not there.
    """
    binary = args.llama_server or built_server()
    if not binary.is_file():
        raise PeerError(f"--llama-server {binary}: no such file")
    threads = choose_threads(args.threads)
    own = PythonEngine(
        name=OWN,
        module=own_synthetic.__name__,
        version=str(machine()["specrt"]),
        model=path,
        context=CONTEXT,
        threads=threads,
        speculations=[own_synthetic.mode(one.num_draft, one.acceptance) for one in points],
        start_seconds=args.start_seconds,
    )
    llama = LlamaCpp(
        binary=binary,
        model=path,
        context=CONTEXT,
        threads=threads,
        speculations=[synthetic_type(one.num_draft, one.acceptance) for one in points],
        start_seconds=args.start_seconds,
    )
    return [own, llama]


def measure(
    engines: Sequence[Engine], drafting: Mapping[Contestant, Point], cases: Cases, rounds: int
) -> Iterator[Sample]:
    """A prompt a round, answered by every engine plainly and at every point, all in turns."""
    plain = [Contestant(engine.name, PLAIN) for engine in engines]
    contestants = [*plain, *drafting]
    jobs = [(str(n), "random", cases.random((3, n), CACHED, TOKENS)) for n in range(rounds)]
    with closing(one_pass(engines, contestants, cases, 0, jobs, Plan(1, CACHED, _say))) as samples:
        yield from samples


def _plain_ms(samples: Sequence[Sample], engine: str) -> Spread:
    of_it = [sample for sample in samples if sample.contestant == Contestant(engine, PLAIN)]
    return Spread.of(list(step_ms(of_it).values()))


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
