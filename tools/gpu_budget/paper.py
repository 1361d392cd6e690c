"""An op set that holds no weights and runs nothing, but notes what it would launch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from specrt.acts import input_form
from specrt.kernels import KernelOps
from specrt.kernels.kv import KernelKVLayer
from specrt.kernels.program import Launch
from specrt.kernels.weights import KernelWeight, tiles_shape
from specrt.ops import Array, KVType, Role

ALIGNMENT = 256


class PaperProgram:
    """Notes its launches as run."""

    def __init__(self, device: PaperDevice, launches: Sequence[Launch]) -> None:
        self._device, self._launches = device, launches

    def prepare(self) -> None:
        """Nothing."""

    def run(self) -> None:
        """As one graph."""
        self._device.launched += self._launches
        self._device.num_launches += 1

    def repeat(self, times: int, until: Any) -> int:
        """So many graphs; returns how many."""
        for _ in range(times):
            self.run()
        return times


class PaperDevice:
    """Fulfils ``kernels.device.ComputeDevice``; arrays are zeros that nobody touches.

    Attributes:
        launched: kernels, in order.
        num_launches: graphs.
        num_copies: of step values to the device.
    """

    name = "paper"

    def __init__(self) -> None:
        self.launched: list[Launch] = []
        self.num_launches = self.num_copies = 0

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
        """Note one that belongs to no program."""
        self.launched.append(Launch(file, entry, grid, block, args, shared_bytes, defines))

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> Array:
        """Memory that the system maps when it is written, so never."""
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        room = np.zeros(size + ALIGNMENT, np.uint8)
        begin = -room.ctypes.data % ALIGNMENT
        return room[begin : begin + size].view(dtype).reshape(shape)

    def to_device(self, values: np.ndarray) -> Array:
        """The values."""
        return values

    def assign(self, array: Array, values: np.ndarray) -> None:
        """Nothing."""

    def to_host(self, array: Array) -> np.ndarray:
        """The zeros."""
        return array

    def ordered(self) -> AbstractContextManager[None]:
        """Nothing is out of order."""
        return nullcontext()

    def sender(self, array: Array) -> Callable[[np.ndarray], None]:
        """Counts copies."""

        def send(values: np.ndarray) -> None:
            self.num_copies += 1

        return send

    def program(self, launches: Sequence[Launch]) -> PaperProgram:
        """What notes these."""
        return PaperProgram(self, launches)


class PaperWeight(KernelWeight):
    """A weight with the size of its tiles and no data."""

    def __init__(self, tensor: Any, role: Role, bias: Array | None) -> None:
        self.shape, self.role, self.bias = tensor.shape, role, bias
        self.type_name = tensor.type.name
        self.form = input_form(self.type_name, role)
        size = tiles_shape(self.type_name, tensor.raw.shape)
        self.tiles = np.broadcast_to(np.uint8(0), size)
        self._keys = None
        self._to_device = lambda values: values


class PaperOps(KernelOps):
    """The CUDA op set on such a device.

    Attributes:
        kv_layers: all that were made, in order.
    """

    def __init__(self, device: PaperDevice) -> None:
        super().__init__(device)
        self.kv_layers: list[KernelKVLayer] = []

    def kv_layer(
        self, num_pages: int, num_heads: int, head_dim: int, kv_type: KVType, ring_pages: int
    ) -> KernelKVLayer:
        """A layer's pages, which are noted."""
        layer = super().kv_layer(num_pages, num_heads, head_dim, kv_type, ring_pages)
        self.kv_layers.append(layer)
        return layer

    def vector(self, tensor: Any) -> Array:
        """Room for the values."""
        return self.buffer(tensor.shape, np.float32)

    def weight(self, tensor: Any, role: Role = "int8", bias: Array | None = None) -> PaperWeight:
        """A weight without data."""
        return PaperWeight(tensor, role, bias)
