"""The CUDA device: arrays, launches and graphs on one stream."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..errors import MismatchError
from ..ops import Program
from ._module import Kernels, find_cuda
from .graphs import GRAPH_BYTES, GraphProgram, Graphs
from .pinned import PinnedSender
from .program import Launch


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
        self._device = cupy.cuda.Device()
        with self._device:
            self._stream = cupy.cuda.Stream(non_blocking=True)
        self.num_launches = 0
        self._graphs = Graphs(cupy, self, self._stream, graph_bytes)
        self._kernels = Kernels(cupy, verbose)

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
        with self.ordered():
            kernel = self._kernels.find(file, entry, defines)
            self.num_launches += 1
            kernel((*grid, 1, 1)[:3], (block, 1, 1), values, shared_mem=shared_bytes)

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """A new array of zeros."""
        with self.ordered():
            return self._cupy.zeros(shape, dtype)

    def to_device(self, values: np.ndarray) -> Any:
        """A new array of these values."""
        with self.ordered():
            array = self._cupy.empty(values.shape, values.dtype)
            # Not by cupy.array: its pinned memory, as large as the weights, would stay in a pool.
            array.set(np.ascontiguousarray(values), stream=self._stream)
            self._stream.synchronize()
            return array

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
        with self.ordered():
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
        return self._kernels.has(launch.file, launch.entry, launch.defines)

    @contextmanager
    def ordered(self) -> Iterator[None]:
        """Within the block CuPy works on the stream of the kernels."""
        with self._device, self._stream:
            yield

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
