"""Kernels under the thread sanitiser, in a process that starts with its library.

As a program it runs one name after another: of an op whose cases ``race_cases`` has, or
``toys:<entry>``. ``<folder> <name> ...``; an empty folder means specrt's own kernels.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
THREADS = 96


@cache
def start() -> tuple[list[str], dict[str, str]] | str:
    """The beginning of a command and its environment; or why there is none."""
    compiler = shutil.which(os.environ.get("CXX") or "g++")
    if compiler is None:
        return "no g++"
    command = [compiler, "-print-file-name=libtsan.so"]
    library = subprocess.run(command, capture_output=True, text=True).stdout.strip()
    if not Path(library).is_absolute():
        return f"{compiler} has no libtsan"
    environment = os.environ | {
        "LD_PRELOAD": library,
        "TSAN_OPTIONS": "halt_on_error=1 report_signal_unsafe=0",
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests"), str(HERE)]),
        "OPENBLAS_NUM_THREADS": "1",
    }
    fixed = ["setarch", os.uname().machine, "-R"]  # libtsan knows few layouts of memory
    said = ""
    for prefix in ([], fixed if shutil.which(fixed[0]) else []):
        tried = [*prefix, sys.executable, "-c", "import numpy"]
        done = subprocess.run(tried, env=environment, capture_output=True, text=True)
        if done.returncode == 0:
            return [*prefix, sys.executable], environment
        said = done.stderr.strip()
    return f"Python does not run under {library}: {said}"


def report_of(*names: str, folder: Path | None = None) -> str:
    """What the sanitiser and the program say; nothing if all runs without a race."""
    beginning = start()
    assert not isinstance(beginning, str), beginning
    command, environment = beginning
    arguments = [str(Path(__file__)), str(folder or ""), *names]
    done = subprocess.run(
        [*command, *arguments], env=environment, capture_output=True, text=True, cwd=ROOT
    )
    finished = done.stdout.split() == ["finished", *names]
    return "" if done.returncode == 0 and finished else done.stdout + done.stderr


def main(folder: str, *names: str) -> None:
    """Run the names; the sanitiser ends the process at a race."""
    from drawing import run_sample  # in this process only: it imports all kernels
    from race_cases import CASES

    from specrt.bench.op_cases import OPS
    from specrt.kernels import KernelOps
    from specrt.kernels.emulator import Emulator

    sanitized = Emulator(1, Path(folder) if folder else None, sanitize=True)
    ops = KernelOps(sanitized)
    for name in names:
        op, _, toy = name.partition(":")
        if toy:
            x, out = np.zeros((2, THREADS), np.int32)
            grid = (2 if toy.startswith("blocks_") else 1,)
            device = Emulator(1, HERE, sanitize=True)
            device.launch("toys", toy, grid, THREADS, (x, out), 4 * THREADS)
        for case in () if toy else CASES[op]:
            if op == "sample":  # no op, but a kernel
                run_sample(sanitized, *case)
            else:
                OPS[op].bind(ops, case).results()
    print("finished", *names)


if __name__ == "__main__":
    main(*sys.argv[1:])
