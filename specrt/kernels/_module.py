"""Kernels on a CUDA device: found, expanded, compiled when first launched.

This module alone knows CuPy's ``RawModule``.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ..errors import MismatchError, UnsupportedError
from ..ops import Program
from .graphs import GRAPH_BYTES, GraphProgram, Graphs
from .pinned import PinnedSender
from .program import Launch

INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"\s*$')
OPTIONS = ("--std=c++17", "--fmad=false")
OLDEST = 75
"""The least compute capability, times ten."""


class Device(Protocol):
    """What launches kernels: a CUDA device or the emulator."""

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
        """Launch an entry of ``cuda/<file>.cu``.

        Args:
            grid: Blocks in x, y, z; what is left out is 1.
            block: Threads of a block: the entry's launch bound.
            args: Arrays, None for a null pointer, and NumPy scalars of the parameters' types.
            shared_bytes: Of the dynamic shared block.
            defines: Macros, "NAME value" each, that the file is compiled with: a module of its own.
        """


class ComputeDevice(Device, Protocol):
    """A device with its arrays; what is asked of it happens in the order in which it was asked."""

    name: str
    num_launches: int
    """What it was given to run: kernels one by one, or whole graphs."""

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """A new array of zeros, at a multiple of 256 bytes."""

    def to_device(self, values: np.ndarray) -> Any:
        """A new array of these values."""

    def assign(self, array: Any, values: np.ndarray) -> None:
        """Write values into an array, or a part of one."""

    def to_host(self, array: Any) -> np.ndarray:
        """The values, once all that was asked before is done."""

    def ordered(self) -> AbstractContextManager[None]:
        """Within the block array operations happen in order with everything else."""

    def sender(self, array: Any) -> Callable[[np.ndarray], None]:
        """What copies values into an array's first places, for each step anew."""

    def program(self, launches: Sequence[Launch]) -> Program:
        """What makes these launches, again and again."""


def kernel_folder() -> Path:
    """Where the ``.cu`` files are: ``specrt/cuda`` of an installed wheel, ``cuda`` of a checkout.

    Raises:
        UnsupportedError: neither is there.
    """
    package = Path(__file__).parent.parent
    for folder in (package / "cuda", package.parent / "cuda"):
        if (folder / "common.cuh").is_file():
            return folder
    raise UnsupportedError(
        f"no CUDA kernels in {package / 'cuda'} nor beside {package}: install specrt anew"
    )


def expand(name: str, folders: Sequence[Path], defines: Sequence[str] = ()) -> str:
    """A file's text with our own includes in their places, each once.

    CuPy's cache of compiled kernels goes by this text, not by that of included files.

    Args:
        name: as an include names it.
        folders: where files are looked for, in this order.
        defines: macros, "NAME value" each.

    Raises:
        UnsupportedError: an included file is in none of the folders.
    """
    lines = [f"#define {define}" for define in defines] + _lines(name, folders, set())
    return "\n".join(lines) + "\n"


def _lines(name: str, folders: Sequence[Path], seen: set[str]) -> list[str]:
    if name in seen:
        return []
    seen.add(name)
    found = [folder / name for folder in folders if (folder / name).is_file()]
    if not found:
        raise UnsupportedError(f"{name} is in none of {', '.join(map(str, folders))}")
    lines = [f'#line 1 "{name}"']
    for number, line in enumerate(found[0].read_text().splitlines(), 1):
        if include := INCLUDE.match(line):
            lines += [*_lines(include[1], folders, seen), f'#line {number + 1} "{name}"']
        else:
            lines.append(line)
    return lines


def find_cuda() -> Any:
    """CuPy, where kernels can be compiled and run.

    Raises:
        UnsupportedError: CuPy, a driver with a device that is new enough, or NVRTC is missing.
    """
    try:
        cupy = import_module("cupy")
    except ImportError as error:
        raise UnsupportedError(
            f"CUDA needs CuPy ({error}): install specrt[cuda12] or specrt[cuda13]"
        ) from error
    # CuPy raises errors of its own, and others where a library cannot be opened.
    try:
        devices = cupy.cuda.runtime.getDeviceCount()
        capability = int(cupy.cuda.Device().compute_capability) if devices else 0
    except Exception as error:
        raise UnsupportedError(f"no NVIDIA driver that CuPy can use: {error}") from error
    if capability < OLDEST:
        raise UnsupportedError(
            f"{devices} CUDA devices, the first of compute capability {capability / 10}; "
            f"expected {OLDEST / 10} or newer"
        )
    try:
        cupy.cuda.nvrtc.getVersion()
    except Exception as error:
        raise UnsupportedError(
            f"CuPy finds no NVRTC ({error}): install nvidia-cuda-nvrtc of its CUDA version"
        ) from error
    return cupy


class CudaDevice:
    """The current CUDA device, on a stream of its own.

    Args:
        verbose: say on stderr what is being compiled.
        graph_bytes: the most device memory of graphs; 0 for none.

    Raises:
        UnsupportedError: see ``find_cuda``.
    """

    name = "cuda"

    def __init__(self, verbose: bool = False, graph_bytes: int = GRAPH_BYTES) -> None:
        self._cupy = cupy = find_cuda()
        self._verbose = verbose
        self._device = cupy.cuda.Device()
        with self._device:
            self._stream = cupy.cuda.Stream(non_blocking=True)
        self.num_launches = 0
        self._graphs = Graphs(cupy, self, self._stream, graph_bytes)
        self._modules: dict[tuple[str, tuple[str, ...]], Any] = {}
        self._kernels: dict[tuple[str, str, tuple[str, ...]], Any] = {}

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
        """Launch a kernel: see ``Device``."""
        values = tuple(self._argument(entry, place, arg) for place, arg in enumerate(args))
        kernel = self._kernels.get((file, entry, defines))
        if kernel is None:
            kernel = self._module(file, defines).get_function(entry)
            self._kernels[file, entry, defines] = kernel
        self.num_launches += 1
        with self.ordered():
            kernel((*grid, 1, 1)[:3], (block, 1, 1), values, shared_mem=shared_bytes)

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """A new array of zeros."""
        with self.ordered():
            return self._cupy.zeros(shape, dtype)

    def to_device(self, values: np.ndarray) -> Any:
        """A new array of these values."""
        with self.ordered():
            return self._cupy.array(values)

    def assign(self, array: Any, values: np.ndarray) -> None:
        """Write values into an array, or a part of one."""
        with self.ordered():
            array[...] = self._cupy.asarray(values)

    def to_host(self, array: Any) -> np.ndarray:
        """The values, once all that was asked before is done."""
        with self.ordered():
            return array.get(stream=self._stream)

    def sender(self, array: Any) -> PinnedSender:
        """Copies through pinned memory, so that no copy waits for the device."""
        return PinnedSender(self._cupy, self._stream, array)

    def program(self, launches: Sequence[Launch]) -> GraphProgram:
        """A graph, once the kernels have run."""
        return GraphProgram(self._graphs, launches, self._is_warm)

    @property
    def l2_bytes(self) -> int:
        """Bytes of the cache that all multiprocessors share."""
        return int(self._device.attributes["L2CacheSize"])

    @property
    def facts(self) -> dict[str, str | int]:
        """What a time depends on."""
        return {
            "gpu": self._cupy.cuda.runtime.getDeviceProperties(self._device.id)["name"].decode(),
            "compute_capability": self._device.compute_capability,
            "multiprocessors": self._device.attributes["MultiProcessorCount"],
            "l2_bytes": self.l2_bytes,
            "cupy": self._cupy.__version__,
        }

    def timed(self, program: Program) -> float:
        """Microseconds that a run takes on the device, right behind another one.

        While the run before keeps the device busy, all of the timed one gets queued.
        """
        events = self._cupy.cuda
        with self._device:
            start, end = events.Event(), events.Event()
            program.run()
            start.record(self._stream)
            program.run()
            end.record(self._stream)
            end.synchronize()
        return 1e3 * float(events.get_elapsed_time(start, end))

    def _is_warm(self, launch: Launch) -> bool:
        return (launch.file, launch.entry, launch.defines) in self._kernels

    @contextmanager
    def ordered(self) -> Iterator[None]:
        """Within the block CuPy works on the stream of the kernels."""
        with self._device, self._stream:
            yield

    def _module(self, file: str, defines: tuple[str, ...]) -> Any:
        if (file, defines) not in self._modules:
            if self._verbose:
                print(" ".join((f"compiling cuda/{file}.cu", *defines)), file=sys.stderr)
            text = expand(f"{file}.cu", (kernel_folder(),), defines)
            self._modules[file, defines] = self._cupy.RawModule(code=text, options=OPTIONS)
        return self._modules[file, defines]

    def _argument(self, entry: str, place: int, arg: Any) -> Any:
        """RawModule passes on whatever it gets, a Python number as 64 bits."""
        if arg is None:
            return np.uint64(0)
        if not isinstance(arg, (self._cupy.ndarray, np.number)):
            raise MismatchError(
                f"{entry}: argument {place} is a {type(arg).__name__}; expected a CuPy array, None "
                "or a NumPy scalar"
            )
        return arg
