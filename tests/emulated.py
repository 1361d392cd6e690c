"""Kernels under the emulator: where it runs, what was launched, and arrays placed in memory."""

import platform
import shutil
import sys

import numpy as np
import pytest

from specrt.kernels._module import kernel_folder
from specrt.kernels.emulator import Emulator

RUNS = platform.machine() in ("x86_64", "AMD64") and sys.platform == "linux"
needs_emulator = pytest.mark.skipif(
    not RUNS or shutil.which("g++") is None, reason="the emulator needs x86-64 Linux and g++"
)
SEEDS = range(4)


class Recorder:
    """An emulator that keeps the names of the entries that were launched."""

    def __init__(self, seed=0, flush=True):
        self._emulator = Emulator(seed, flush=flush)
        self.entries = []

    def launch(self, file, entry, grid, block, args, shared_bytes=0, defines=()):
        """Note the entry and run it."""
        self.entries.append(entry)
        self._emulator.launch(file, entry, grid, block, args, shared_bytes, defines)


def placed(x, offset=0):
    """A copy that starts so many bytes behind a multiple of 64."""
    memory = np.full(x.nbytes + 128, 0xFF, np.uint8)
    start = -memory.ctypes.data % 64 + offset
    copy = memory[start : start + x.nbytes].view(x.dtype).reshape(x.shape)
    copy[:] = x
    return copy


def broken(tmp_path, file, right, wrong):
    """The kernels with one text in place of another."""
    folder = tmp_path / "cuda"
    shutil.copytree(kernel_folder(), folder)
    text = (folder / file).read_text()
    assert right in text
    (folder / file).write_text(text.replace(right, wrong))
    return Emulator(1, folder)
