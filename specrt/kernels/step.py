"""Step values of the CUDA op set: written on the host, read on the device."""

from __future__ import annotations

from typing import Any

from ..state.step import StepInputs
from ._module import ComputeDevice


class KernelStep(StepInputs):
    """Step values for the host to write; ``publish`` copies the block to the device.

    Args:
        device: where the ops run; the others are those of ``StepInputs``.

    Attributes:
        on_device: the same arrays there, as of the last ``publish``.
    """

    def __init__(
        self, num_rows: int, num_seqs: int, num_pages: int, ring_pages: int, device: ComputeDevice
    ) -> None:
        sizes = (num_rows, num_seqs, num_pages, ring_pages)
        super().__init__(*sizes)
        self.on_device: Any = StepInputs(*sizes, device.zeros)
        self._send = device.sender(self.on_device.block)

    def publish(self) -> None:
        """Copy the block; what is written from now on counts for the next ``publish``."""
        self._send(self.block)
