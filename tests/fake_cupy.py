"""CuPy's parts that are used, over the emulator: streams work late, and graphs replay."""

import re
from collections import deque
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np

from specrt.kernels.emulator import Emulator

NODE_BYTES = 64 << 10
FREE_BYTES = 1 << 30


class CUDARuntimeError(RuntimeError):
    """As CuPy raises it."""


class CUDADriverError(RuntimeError):
    """As CuPy raises it, of launches."""


class FakeStream:
    """Does what was asked when it is waited for, in that order; a capture takes it instead."""

    def __init__(self, cupy):
        self._cupy = cupy
        self._asked = deque()
        self._captured = None
        self._before = []

    def __enter__(self):
        self._before.append(self._cupy.current)
        self._cupy.current = self

    def __exit__(self, *error):
        self._cupy.current = self._before.pop()

    def ask(self, call):
        (self._asked if self._captured is None else self._captured).append(call)

    def synchronize(self):
        if self._captured is not None:
            raise CUDARuntimeError("cudaErrorStreamCaptureUnsupported")
        while self._asked:
            self._asked.popleft()()

    def begin_capture(self, mode):
        assert mode == "thread-local"
        self._cupy.note("begin_capture")
        self._captured = []

    def end_capture(self):
        self._cupy.note("end_capture")
        captured, self._captured = self._captured, None
        return FakeGraph(self._cupy, captured)


class FakeGraph:
    """Calls with the arguments of their capture; takes memory while it lives."""

    def __init__(self, cupy, calls):
        self._cupy, self._calls = cupy, calls
        self._bytes = NODE_BYTES * len(calls)
        cupy.free -= self._bytes

    def __del__(self):
        self._cupy.free += self._bytes

    def upload(self, stream):
        """It is there."""

    def launch(self, stream):
        self._cupy.num_graph_launches += 1
        for call in self._calls:
            stream.ask(call)


class FakeEvent:
    """Waits for its stream; has its time if it was made with one."""

    def __init__(self, cupy, disable_timing):
        cupy.note("event")
        self._cupy, self._stream = cupy, None
        self._timing = not disable_timing
        self.time = None

    def record(self, stream):
        self._stream = stream
        if self._timing:
            stream.ask(self._note)

    def _note(self):
        self.time = self._cupy.clock

    def synchronize(self):
        if self._stream is not None:
            self._stream.synchronize()


class FakeArray(np.ndarray):
    """Memory of the device: values come and go by way of a stream."""

    cupy = None

    def __array_finalize__(self, base):
        self.cupy = getattr(base, "cupy", self.cupy)

    def __setitem__(self, place, values):
        assert isinstance(values, FakeArray), "only arrays of the device can be written to one"
        own, values = np.asarray(self), np.array(values)
        self.cupy.current.ask(lambda: own.__setitem__(place, values))

    def set(self, values, stream):
        self.cupy.num_uploads += 1
        stream.ask(lambda: np.copyto(np.asarray(self), values))

    def get(self, stream):
        self.cupy.num_downloads += 1
        self.cupy.num_bytes_back += self.nbytes
        stream.synchronize()
        return np.array(self)


class FakeCupy:
    """The module, and a way for each part that is looked for to fail."""

    ndarray = FakeArray
    __version__ = "fake"

    def __init__(self, devices=1, capability="90", nvrtc=(13, 0), l2_bytes=1 << 20):
        self.modules, self.launches = [], []
        self.num_graph_launches = self.num_uploads = self.num_downloads = self.num_bytes_back = 0
        self.free, self.pooled = FREE_BYTES, 0
        self.clock = 0  # microseconds; each kernel takes one
        self.device = 0  # the calling thread's
        self.asked_on = {}  # the devices by what was asked for while they were the current one
        self.l2_bytes = l2_bytes
        self._devices, self._capability, self._nvrtc = devices, capability, nvrtc
        self._emulator = Emulator()
        self._allocator = None
        self.current = FakeStream(self)  # the default one, which nobody waits for
        self.cuda = SimpleNamespace(
            runtime=SimpleNamespace(
                getDeviceCount=lambda: self._or_raise(self._devices),
                getDeviceProperties=lambda number: {"name": b"emulated"},
                memGetInfo=lambda: self.note("memory") or (self.free, FREE_BYTES),
                streamCaptureModeThreadLocal="thread-local",
                CUDARuntimeError=CUDARuntimeError,
            ),
            driver=SimpleNamespace(CUDADriverError=CUDADriverError),
            nvrtc=SimpleNamespace(getVersion=lambda: self._or_raise(self._nvrtc)),
            Device=self._device,
            Stream=self._stream,
            Event=lambda disable_timing=False: FakeEvent(self, disable_timing),
            get_elapsed_time=lambda start, end: (end.time - start.time) / 1000,
            alloc_pinned_memory=bytearray,
            using_allocator=self._using_allocator,
        )

    @staticmethod
    def _or_raise(value):
        if isinstance(value, Exception):
            raise value
        return value

    @contextmanager
    def _using_allocator(self, allocator):
        self._allocator = allocator
        try:
            yield
        finally:
            self._allocator = None

    def note(self, what):
        self.asked_on.setdefault(what, set()).add(self.device)

    def _device(self):
        return _Device(self, self._capability, self.l2_bytes)

    def _stream(self, non_blocking):
        assert non_blocking
        return FakeStream(self)

    def RawModule(self, *, code, options):
        self.modules.append((code, options))
        file = re.search(r'^#line 1 "(\w+)\.cu"', code, re.M)[1]
        defines = tuple(re.findall(r"^#define (.*)", code.partition("#line")[0], re.M))

        def get_function(name):
            self.note("kernel")

            def function(grid, block, args, shared_mem):
                self.launches.append((name, grid, block, args, shared_mem))
                args = [None if type(a) is np.uint64 and a == 0 else a for a in args]
                launch = (file, name, grid, block[0], args, shared_mem, defines)
                self.current.ask(lambda: self._run(launch))

            return function

        return SimpleNamespace(get_function=get_function)

    def _run(self, launch):
        self._emulator.launch(*launch)
        self.clock += 1

    def get_default_memory_pool(self):
        return SimpleNamespace(free_bytes=lambda: self.pooled)

    def zeros(self, shape, dtype):
        if self._allocator is not None:
            self._allocator(1)
        array = self._emulator.zeros(shape, dtype).view(FakeArray)
        array.cupy = self
        return array

    empty = zeros

    def array(self, values):
        array = self.zeros(values.shape, values.dtype)
        np.copyto(np.asarray(array), values)
        return array

    asarray = array


class _Device:
    """The current device; within its context it is that again."""

    def __init__(self, cupy, capability, l2_bytes):
        self._cupy, self.id, self._before = cupy, cupy.device, []
        self.compute_capability = capability
        self.attributes = {"L2CacheSize": l2_bytes, "MultiProcessorCount": 4}

    def __enter__(self):
        self._before.append(self._cupy.device)
        self._cupy.device = self.id
        return self

    def __exit__(self, *error):
        self._cupy.device = self._before.pop()
