"""The CUDA kernels on a CPU: the same text, launchers and arguments over NumPy arrays.

It is for correctness only. ``machine.h`` says what it holds a kernel to and what it cannot show.
"""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import SpecrtError
from .._module import kernel_folder
from ..program import Launch as RecordedLaunch
from ..program import PlainProgram
from .build import load_library

__all__ = ["Emulator", "KernelError"]

MAX_GRID = (2**31 - 1, 65535, 65535)
MAX_THREADS = 1024
MAX_SHARED = 48 << 10
"""Bytes of shared memory that every architecture gives without being asked for more."""

ARCHITECTURE_SHARED = "sm_75 has 64 KB, sm_86, 89 and 120 100, sm_80 164, sm_90 and 100 228"

ALIGNMENT = 256
"""Bytes, of every array, as CUDA's allocator gives it."""

CODES = {np.int32: "i", np.uint32: "u", np.int64: "l", np.uint64: "k", np.float32: "f"}
"""How launch.h writes the type of a scalar."""

LAUNCH = struct.Struct("<6IQQ2i")
ARRAY = struct.Struct("<6q")
"""As machine.h has them."""

ARGUMENT_BYTES, MESSAGE_BYTES = 8, 2048


class KernelError(SpecrtError):
    """A kernel did what no device allows, or was launched as no device allows."""


class Emulator:
    """A device that runs ``cuda/*.cu`` on the CPU.

    Args:
        seed: orders threads and blocks; a right kernel gives the same bits for each.
        folder: where the kernels are; None for specrt's own.
        flush: subnormal numbers are zeros, as CuPy compiles.
        sanitize: compiled with the thread sanitiser, whose library the process must have started
            with; it ends the process, or writes to stderr, where it finds a race.
        verbose: say on stderr which kernels are compiled.
    """

    name = "emulator"

    def __init__(
        self,
        seed: int = 0,
        folder: Path | None = None,
        flush: bool = True,
        sanitize: bool = False,
        verbose: bool = False,
    ) -> None:
        self._seed = seed
        self._flush = flush
        self._folder = folder or kernel_folder()
        self._sanitize, self._verbose = sanitize, verbose
        self._entries: dict[tuple[str, str, tuple[str, ...]], Callable[..., int]] = {}
        self.num_launches = 0
        self._message = ctypes.create_string_buffer(MESSAGE_BYTES)

    def launch(
        self,
        file: str,
        entry: str,
        grid: Sequence[int],
        block: int,
        args: Sequence[Any],
        shared_bytes: int = 0,
        defines: tuple[str, ...] = (),
    ) -> None:
        """Run an entry of ``cuda/<file>.cu``: see ``specrt.kernels.device.Device``."""
        self.num_launches += 1
        x, y, z = _checked_sizes(entry, grid, block, shared_bytes)
        codes, values, arrays = _packed(entry, args)
        seed, num_arrays = self._seed, len(arrays) // ARRAY.size
        sizes = LAUNCH.pack(x, y, z, block, 1, 1, shared_bytes, seed, self._flush, num_arrays)
        start = self._entries.get((file, entry, defines)) or self._entry(file, entry, defines)
        if start(sizes, codes, values, arrays, self._message):
            raise KernelError(self._message.value.decode())

    def _entry(self, file: str, entry: str, defines: tuple[str, ...]) -> Callable[..., int]:
        library = load_library(file, self._folder, defines, self._sanitize, self._verbose)
        start = getattr(library, f"emulate_{entry}")
        start.argtypes = [ctypes.c_char_p] * 5
        self._entries[file, entry, defines] = start
        return start

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
        """A new array of zeros, at a multiple of 256 bytes."""
        num_bytes = math.prod(shape) * np.dtype(dtype).itemsize
        memory = np.zeros(num_bytes + ALIGNMENT, np.uint8)
        start = -memory.ctypes.data % ALIGNMENT
        return memory[start : start + num_bytes].view(dtype).reshape(shape)

    def to_device(self, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """A copy."""
        array = self.zeros(values.shape, values.dtype)
        array[...] = values
        return array

    def assign(self, array: np.ndarray[Any, Any], values: np.ndarray[Any, Any]) -> None:
        """Write values into an array, or a part of one."""
        array[...] = values

    def to_host(self, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """A copy."""
        return array.copy()

    def ordered(self) -> AbstractContextManager[None]:
        """Everything happens at once here."""
        return nullcontext()

    def sender(self, array: np.ndarray[Any, Any]) -> Callable[[np.ndarray[Any, Any]], None]:
        """What copies values into the array's first places."""

        def send(values: np.ndarray[Any, Any]) -> None:
            array[: len(values)] = values

        return send

    def program(self, launches: Sequence[RecordedLaunch]) -> PlainProgram:
        """What makes these launches, again and again."""
        return PlainProgram(self, launches)


def _checked_sizes(
    entry: str, grid: Sequence[int], block: int, shared_bytes: int
) -> tuple[int, int, int]:
    x, y, z = (*grid, 1, 1)[:3]
    if not (0 < x <= MAX_GRID[0] and 0 < y <= MAX_GRID[1] and 0 < z <= MAX_GRID[2]):
        raise KernelError(f"{entry}: a grid of {(x, y, z)}; expected 1 to {MAX_GRID}")
    if not 0 < block <= MAX_THREADS:
        raise KernelError(f"{entry}: {block} threads a block; expected 1 to {MAX_THREADS}")
    if not 0 <= shared_bytes <= MAX_SHARED:
        raise KernelError(
            f"{entry}: {shared_bytes} bytes of shared memory; expected at most {MAX_SHARED}, which "
            f"a block has on every architecture without asking for more ({ARCHITECTURE_SHARED})"
        )
    return x, y, z


def _packed(entry: str, args: Sequence[Any]) -> tuple[bytes, bytes, bytes]:
    """A code for each argument, their values, and where the arrays' items lie."""
    codes = ""
    values, arrays = [], []
    for place, arg in enumerate(args):
        if isinstance(arg, np.ndarray):
            address = arg.ctypes.data
            codes += "p"
            values.append(address.to_bytes(ARGUMENT_BYTES, "little"))
            if arg.size:
                arrays.append(ARRAY.pack(*_layout(arg, address), place, 0))
        elif arg is None:
            codes += "p"
            values.append(bytes(ARGUMENT_BYTES))
        elif code := CODES.get(type(arg)):
            codes += code
            values.append(arg.tobytes().ljust(ARGUMENT_BYTES, b"\0"))
        else:
            raise KernelError(
                f"{entry}: argument {place} is a {type(arg).__name__}; expected an array, None or "
                f"a scalar of {', '.join(kind.__name__ for kind in CODES)}"
            )
    return codes.encode(), b"".join(values), b"".join(arrays)


def _layout(array: np.ndarray[Any, Any], address: int) -> tuple[int, int, int, int]:
    """The first byte of an array, its bytes to the last, from row to row, and of a row.

    A row is what lies side by side. Where rows lie in more than one pitch, all from the first byte
    to the last is one row.
    """
    if array.flags.c_contiguous:
        return address, array.nbytes, array.nbytes, array.nbytes
    axes = [(abs(step), n) for step, n in zip(array.strides, array.shape, strict=True) if n > 1]
    start = address + sum(
        (n - 1) * step for step, n in zip(array.strides, array.shape, strict=True) if step < 0
    )
    row_bytes = array.itemsize
    axes.sort()
    while axes and axes[0][0] <= row_bytes:
        step, n = axes.pop(0)
        row_bytes += (n - 1) * step
    num_bytes = row_bytes + sum((n - 1) * step for step, n in axes)
    if len(axes) == 1:
        return start, num_bytes, axes[0][0], row_bytes
    return start, num_bytes, num_bytes, num_bytes
