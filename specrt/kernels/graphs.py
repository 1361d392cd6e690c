"""Programs as CUDA graphs: one launch for all kernels of a step, under a memory budget."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from .program import Launch

if TYPE_CHECKING:
    from .device import ComputeDevice

LOG = logging.getLogger(__name__)

GRAPH_BYTES = 256 << 20
"""Device memory of graphs, where nothing else is asked for."""

NODE_BYTES = 8 << 10
"""What a kernel counts at least, since the driver takes memory for graphs in lumps (a guess)."""


class Graphs:
    """Captured graphs; past the budget the least recently run is dropped.

    A program that nobody holds any more takes its graph along.

    Args:
        cupy: the module.
        device: launches kernels on ``stream``, whatever device the calling thread is on.
        stream: a non-blocking one.
        budget: bytes of device memory; 0 for no graphs.
    """

    def __init__(self, cupy: Any, device: ComputeDevice, stream: Any, budget: int) -> None:
        self.device = device
        self._cupy = cupy
        self._stream = stream
        self._budget = budget
        # The one that ran last is the last.
        self._kept: WeakKeyDictionary[GraphProgram, tuple[Any, int]] = WeakKeyDictionary()

    def find(self, program: GraphProgram) -> Any:
        """The program's graph, now the last to be dropped; None if it has none."""
        kept = self._kept.pop(program, None)
        if kept is None:
            return None
        self._kept[program] = kept
        return kept[0]

    def launch(self, graph: Any) -> None:
        """Run a graph on the stream."""
        self.device.num_launches += 1
        with self.device.ordered():
            graph.launch(self._stream)

    def add(self, program: GraphProgram, launches: Sequence[Launch]) -> bool:
        """Capture launches whose kernels have all run before; False if that cannot be done."""
        if len(launches) * NODE_BYTES > self._budget:
            return False
        before = self._free_bytes()
        cuda = self._cupy.cuda
        errors = (cuda.runtime.CUDARuntimeError, cuda.driver.CUDADriverError, MemoryError)
        try:
            graph = self._capture(launches)
        except errors as error:
            LOG.warning(
                "no graph of %d kernels, they are launched singly: %s", len(launches), error
            )
            return False
        size = max(before - self._free_bytes(), len(launches) * NODE_BYTES)
        LOG.debug("captured a graph of %d kernels: %d bytes", len(launches), size)
        if size > self._budget:  # or another process took memory meanwhile: the others stay
            LOG.debug("reset it: the budget is %d", self._budget)
            return False
        self._kept[program] = graph, size
        self._drop_oldest()
        return True

    def _drop_oldest(self) -> None:
        while sum(size for _, size in self._kept.values()) > self._budget:
            _, size = self._kept.pop(next(iter(self._kept.keys())))
            LOG.debug("reset a graph of %d bytes: the budget is %d", size, self._budget)

    def _free_bytes(self) -> int:
        with self.device.ordered():
            self._stream.synchronize()
            return int(self._cupy.cuda.runtime.memGetInfo()[0])

    def _capture(self, launches: Sequence[Launch]) -> Any:
        """Nothing but the launches may happen meanwhile: no allocation, and no array freed."""
        runtime, num_launches = self._cupy.cuda.runtime, self.device.num_launches
        no_memory = self._cupy.cuda.using_allocator(_refuse)
        with _no_collection(), no_memory, self.device.ordered():
            self._stream.begin_capture(runtime.streamCaptureModeThreadLocal)
            try:
                for launch in launches:
                    launch.on(self.device)
            except BaseException:
                with suppress(Exception):  # what went wrong first tells why
                    self._stream.end_capture()
                raise
            else:
                graph = self._stream.end_capture()
            finally:
                self.device.num_launches = num_launches  # nothing ran
            graph.upload(self._stream)
        return graph


class GraphProgram:
    """Launches that become one graph once each kernel has run.

    Args:
        graphs: keeps the graph.
        launches: the kernels, in order.
        is_warm: whether a launch's kernel has run before.
    """

    def __init__(
        self, graphs: Graphs, launches: Sequence[Launch], is_warm: Callable[[Launch], bool]
    ) -> None:
        self._graphs = graphs
        self._launches = launches
        self._is_warm = is_warm
        self._refused = False

    def prepare(self) -> None:
        """Capture the graph, if that can be done now."""
        if self._refused or self._graphs.find(self) is not None:
            return
        if all(map(self._is_warm, self._launches)):
            self._refused = not self._graphs.add(self, self._launches)

    def run(self) -> None:
        """Launch the graph, or the kernels singly where there is none."""
        graph = self._graphs.find(self)
        if graph is not None:
            self._graphs.launch(graph)
            return
        for launch in self._launches:
            launch.on(self._graphs.device)

    def repeat(self, times: int, until: Any) -> int:
        """Run that often: to look at ``until`` would be to wait; returns how often."""
        for _ in range(times):
            self.run()
        return times


def _refuse(size: int) -> Any:
    raise MemoryError(f"an array of {size} bytes was wanted while a graph was captured")


@contextmanager
def _no_collection() -> Iterator[None]:
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
