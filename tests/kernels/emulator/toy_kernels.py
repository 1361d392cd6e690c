"""Launches of the kernels in ``toys.cu``."""

from pathlib import Path

import numpy as np

from specrt.kernels.emulator import Emulator

TOYS = Path(__file__).parent
THREADS = 96
SEEDS = range(6)


def launch(entry, *args, grid=1, shared=4 * THREADS, seed=0, block=THREADS, flush=True):
    """Run an entry; shared memory holds an int per thread unless it says more."""
    Emulator(seed, TOYS, flush).launch("toys", entry, (grid,), block, args, shared)


def integers(n=THREADS):
    """Some int32."""
    return np.random.default_rng(3).integers(-1000, 1000, n).astype(np.int32)


def line_of(text):
    """The first line that holds a text."""
    lines = (TOYS / "toys.cu").read_text().splitlines()
    return next(n for n, line in enumerate(lines, 1) if text in line)
