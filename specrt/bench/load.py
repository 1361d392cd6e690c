"""From nothing to the first token: import, load, and the memory that it took."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from specrt.bench.arguments import add_json, add_model, positive
from specrt.bench.report import (
    Bound,
    bound_rows,
    check_writable,
    collect,
    number,
    save,
    show,
    show_bounds,
    spread,
)
from specrt.bench.timing import Spread, WrongResultError, machine, model_file
from specrt.errors import OptionError
from specrt.gguf.reader import open_gguf
from specrt.llm import find_model
from specrt.memory import memory_plan

PROMPT = list(range(1, 33))
IMPORT_SECONDS, FIRST_TOKEN_SECONDS, SPARE_BYTES = 0.3, 3.0, 400_000_000

IMPORT = """
import time
start = time.perf_counter()
import specrt
print(time.perf_counter() - start)
"""
FIRST_TOKEN = """
import json, sys, time
import specrt
options, prompt = json.loads(sys.argv[1])
start = time.perf_counter()
llm = specrt.load(**options)
stream = llm.stream(prompt, specrt.SamplingParams(max_tokens=1, ignore_eos=True))
token = next(stream).token_ids[0]
seconds = time.perf_counter() - start
try:  # getrusage counts what the parent had, too
    lines = open("/proc/self/status").read().splitlines()
    peak = [int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")][0]
except OSError:
    from specrt.bench.timing import peak_memory
    peak = peak_memory()
stream.close()
print(json.dumps([seconds, peak, token, int(llm.logits(prompt)[-1].argmax())]))
"""


@dataclass(frozen=True, slots=True)
class Started:
    """Fresh processes, one after the other.

    Args:
        what: they did.
        seconds: it took.
        peak_bytes: the most that one had in memory, None where that is not asked.
    """

    what: str
    seconds: Spread
    peak_bytes: int | None = None


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The flags of this benchmark."""
    add_model(parser)
    add_json(parser)
    parser.add_argument("--rounds", type=positive, default=5, metavar="N", help="of each")


def run(args: argparse.Namespace) -> int:
    """Measure, print and save.

    Raises:
        WrongResultError: a first token is not the likeliest one.
        SpecrtError: a flag or the model is impossible.
    """
    check_writable(args.json)
    path = Path(find_model(args.model))
    with open_gguf(path) as gguf:
        plan = memory_plan(gguf, args.context, args.kv_type or "f16", max_sequences=1)
        size = gguf.size
    found, complete = collect(measure(args))
    show(
        "Fresh processes, the file in the page cache",
        ("what", "seconds (least..most)", "peak MiB"),
        [
            (one.what, spread(one.seconds), number(one.peak_bytes and one.peak_bytes / 2**20, 0))
            for one in found
        ],
    )
    bounds = bounds_of(found, size + plan.kv + SPARE_BYTES)
    show_bounds(bounds)
    content = {
        "bench": "load",
        "complete": complete,
        "machine": machine(args.threads),
        "model": model_file(path),
        "settings": {"rounds": args.rounds, "context": plan.context, "kv_type": plan.kv_type},
        "kv_bytes": plan.kv,
        "results": found,
        "bounds": bound_rows(bounds),
    }
    save(args.json, content)
    return 0 if complete else 130


def measure(args: argparse.Namespace) -> Iterator[Started]:
    """Import, then load to the first token; what runs first brings the file into memory."""
    outputs = [float(_output(IMPORT)) for _ in range(args.rounds + 1)]
    yield Started("import specrt", Spread.of(outputs[1:]))
    options = {
        "path": args.model,
        "device": args.device or "auto",
        "context": args.context,
        "kv_type": args.kv_type or "f16",
        "threads": args.threads,
        "max_sequences": 1,
        "verbose": False,
    }
    given = json.dumps([options, PROMPT])
    loads = [json.loads(_output(FIRST_TOKEN, given)) for _ in range(args.rounds + 1)]
    for _, _, token, likeliest in loads:
        if token != likeliest:
            raise WrongResultError(f"first token {token}, but the likeliest one is {likeliest}")
    seconds, peaks = np.array(loads)[1:, :2].T
    yield Started("load to first token", Spread.of(seconds.tolist()), int(peaks.max()))


def bounds_of(found: list[Started], most_bytes: int) -> list[Bound]:
    """What was measured beside what it may be."""
    seconds = (IMPORT_SECONDS, FIRST_TOKEN_SECONDS)
    bounds = [
        Bound(f"{one.what}: seconds, median", one.seconds.median, most, True)
        for one, most in zip(found, seconds, strict=False)
    ]
    name = "peak MiB: file + KV of the context + 400 MB"
    return bounds + [
        Bound(name, one.peak_bytes / 2**20, most_bytes / 2**20, True)
        for one in found
        if one.peak_bytes is not None
    ]


def _output(script: str, *arguments: str) -> str:
    """What a fresh process prints.

    Raises:
        OptionError: it failed.
    """
    command = [sys.executable, "-c", script, *arguments]
    process = subprocess.run(command, capture_output=True, text=True)
    if process.returncode:
        last = process.stderr.strip().splitlines()[-1:]
        raise OptionError(f"a fresh process failed: {''.join(last)}")
    return process.stdout
