"""The CUDA op set: one launcher per ``cuda/<op>.cu``, over CuPy arrays or the emulator's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..ops import Activation, Program
from ..reference.quant_blocks import dequantize
from ._module import ComputeDevice, Device
from .accept import accept
from .copy import copy
from .glu import glu
from .program import Recorder
from .quantize import quantize
from .rms_norm import rms_norm
from .select import select
from .step import KernelStep

__all__ = ["KernelOps"]

Array = Any


class KernelOps:
    """The op set of ``specrt.ops.Ops`` over CUDA kernels.

    Args:
        device: a CUDA device, or the emulator.
    """

    def __init__(self, device: ComputeDevice) -> None:
        self.device = device.name
        self._device = device
        self._recorder: Recorder | None = None

    @contextmanager
    def record(self) -> Iterator[Program]:
        """Within the block ops are recorded and not run."""
        if self._recorder is not None:
            raise RuntimeError("a program is being recorded already; end its block first")
        self._recorder = Recorder()
        try:
            yield self._device.program(self._recorder.launches)
        finally:
            self._recorder = None

    @property
    def _to(self) -> Device:
        """What launchers launch on."""
        return self._recorder or self._device

    def buffer(self, shape: tuple[int, ...], dtype: Any) -> Array:
        """A zeroed array on the device."""
        return self._device.zeros(shape, dtype)

    def assign(self, array: Array, values: np.ndarray) -> None:
        """Write values into a buffer, or a part of one."""
        self._device.assign(array, values)

    def to_host(self, array: Array) -> np.ndarray:
        """The values, once every op before has run."""
        return self._device.to_host(array)

    def vector(self, tensor: Any) -> Array:
        """A GGUF tensor of one axis as float32."""
        values = dequantize(tensor.type.name, tensor.raw.reshape(1, -1))[0]
        return self._device.to_device(values.astype(np.float32))

    def step_inputs(
        self, num_rows: int, num_seqs: int, num_pages: int, ring_pages: int
    ) -> KernelStep:
        """Step values of at most these numbers."""
        return KernelStep(num_rows, num_seqs, num_pages, ring_pages, self._device)

    def rms_norm(
        self,
        x: Array,
        weight: Array | None,
        eps: float,
        *,
        out: Array | None,
        add: Array | None = None,
        acts: Any | None = None,
    ) -> None:
        """Normalise rows."""
        rms_norm(self._to, x, weight, eps, out=out, add=add, acts=acts)

    def quantize(self, x: Array, *, out: Any) -> None:
        """Prepare rows for ``linear``."""
        quantize(self._to, x, out=out)

    def glu(
        self,
        gate: Array,
        up: Array,
        *,
        activation: Activation,
        out: Array | None,
        acts: Any | None = None,
    ) -> None:
        """Gate rows."""
        glu(self._to, gate, up, activation=activation, out=out, acts=acts)

    def accept(self, ids: Array, step: KernelStep, *, out: Array) -> None:
        """Greedy acceptance."""
        accept(self._to, ids, step.on_device, out=out)

    def copy(self, x: Array, *, out: Array) -> None:
        """Copy rows."""
        copy(self._to, x, out=out)

    def select(self, x: Array, index: Array, *, out: Array) -> None:
        """Choose rows."""
        select(self._to, x, index, out=out)
