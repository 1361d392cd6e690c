"""The CUDA kernels on a CPU: the same text, launchers and arguments over NumPy arrays.

It is for correctness only. ``machine.h`` says what it holds a kernel to and what it cannot show.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
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
MAX_BLOCK = (1024, 1024, 64)
MAX_THREADS = 1024
MAX_SHARED = 48 << 10
"""Bytes of shared memory that every architecture gives without being asked for more."""

ALIGNMENT = 256
"""Bytes, of every array, as CUDA's allocator gives it."""

CODES = {np.int32: "i", np.uint32: "u", np.int64: "l", np.uint64: "k", np.float32: "f"}
"""How machine.h writes the type of a scalar."""


class KernelError(SpecrtError):
    """A kernel did what no device allows, or was launched as no device allows."""


class Range(ctypes.Structure):
    """Bytes that a launch may touch."""

    _fields_ = (("start", ctypes.c_void_p), ("end", ctypes.c_void_p))


class Launch(ctypes.Structure):
    """What machine.h reads under the same name."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_size_t),
        ("seed", ctypes.c_uint64),
        ("flush", ctypes.c_int),
        ("args", ctypes.POINTER(ctypes.c_void_p)),
        ("codes", ctypes.c_char_p),
        ("ranges", ctypes.POINTER(Range)),
        ("num_ranges", ctypes.c_int),
        ("message", ctypes.c_char_p),
        ("message_bytes", ctypes.c_size_t),
    )


class Emulator:
    """A device that runs ``cuda/*.cu`` on the CPU.

    Args:
        seed: orders threads and blocks; a right kernel gives the same bits for each.
        folder: where the kernels are; None for specrt's own.
        flush: subnormal numbers are zeros, as CuPy compiles.
    """

    name = "emulator"

    def __init__(self, seed: int = 0, folder: Path | None = None, flush: bool = True) -> None:
        self._seed = seed
        self._flush = flush
        self._folder = folder or kernel_folder()
        self._libraries: dict[tuple[str, tuple[str, ...]], ctypes.PyDLL] = {}

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
        """Run an entry of ``cuda/<file>.cu``: see ``specrt.kernels._module.Device``."""
        sizes = _checked_sizes(entry, grid, block, shared_bytes)
        values, codes, ranges = _packed(entry, args)
        message = ctypes.create_string_buffer(2048)
        launch = Launch(
            grid=sizes,
            block=(block, 1, 1),
            shared_bytes=shared_bytes,
            seed=self._seed,
            flush=self._flush,
            args=(ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values)),
            codes=codes.encode(),
            ranges=(Range * len(ranges))(*ranges),
            num_ranges=len(ranges),
            message=ctypes.cast(message, ctypes.c_char_p),
            message_bytes=len(message),
        )
        if (file, defines) not in self._libraries:
            self._libraries[file, defines] = load_library(file, self._folder, defines)
        library = self._libraries[file, defines]
        if getattr(library, f"emulate_{entry}")(ctypes.byref(launch)):
            raise KernelError(message.value.decode())

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
        """What copies values into the array."""
        return partial(np.copyto, array)

    def program(self, launches: Sequence[RecordedLaunch]) -> PlainProgram:
        """What makes these launches, again and again."""
        return PlainProgram(self, launches)


def _checked_sizes(
    entry: str, grid: Sequence[int], block: int, shared_bytes: int
) -> tuple[int, int, int]:
    x, y, z = (*grid, 1, 1)[:3]
    if any(not 0 < n <= most for n, most in zip((x, y, z), MAX_GRID, strict=True)):
        raise KernelError(f"{entry}: a grid of {(x, y, z)}; expected 1 to {MAX_GRID}")
    if not 0 < block <= MAX_THREADS:
        raise KernelError(f"{entry}: {block} threads a block; expected 1 to {MAX_THREADS}")
    if not 0 <= shared_bytes <= MAX_SHARED:
        raise KernelError(f"{entry}: {shared_bytes} bytes of shared memory; at most {MAX_SHARED}")
    return x, y, z


def _packed(entry: str, args: Sequence[Any]) -> tuple[list[Any], str, list[Range]]:
    """C values of the arguments, a code for each type, and the bytes of the arrays."""
    values: list[Any] = []
    codes = ""
    ranges = []
    for place, arg in enumerate(args):
        if arg is None:
            values.append(ctypes.c_void_p(None))
            codes += "p"
        elif isinstance(arg, np.ndarray):
            values.append(ctypes.c_void_p(arg.ctypes.data))
            codes += "p"
            ranges.append(Range(*_bytes_of(arg)))
        elif type(arg) in CODES:
            values.append((ctypes.c_char * arg.itemsize).from_buffer_copy(arg.tobytes()))
            codes += CODES[type(arg)]
        else:
            raise KernelError(
                f"{entry}: argument {place} is a {type(arg).__name__}; expected an array, None or "
                f"a scalar of {', '.join(kind.__name__ for kind in CODES)}"
            )
    return values, codes, ranges


def _bytes_of(array: np.ndarray[Any, Any]) -> tuple[int, int]:
    if not math.prod(array.shape):
        return array.ctypes.data, array.ctypes.data
    reach = [(n - 1) * stride for n, stride in zip(array.shape, array.strides, strict=True)]
    start = array.ctypes.data + sum(step for step in reach if step < 0)
    end = array.ctypes.data + sum(step for step in reach if step > 0) + array.itemsize
    return start, end
