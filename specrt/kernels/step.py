"""Step values of the CUDA op set: written on the host, read on the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..state.step import StepInputs


class KernelStep(StepInputs):
    """Step values for the host to write; ``publish`` copies the block to the device.

    Args:
        buffer: makes an array of the device.
        sender: what copies values into an array of the device.

    Attributes:
        on_device: the same arrays there, as of the last ``publish``.
    """

    def __init__(
        self,
        num_rows: int,
        num_seqs: int,
        num_pages: int,
        ring_pages: int,
        buffer: Callable[[tuple[int, ...], Any], Any],
        sender: Callable[[Any], Callable[[np.ndarray], None]],
    ) -> None:
        sizes = (num_rows, num_seqs, num_pages, ring_pages)
        super().__init__(*sizes)
        self.on_device: Any = StepInputs(*sizes, buffer)
        self._send = sender(self.on_device.block)

    def publish(self) -> None:
        """Copy the block; what is written from now on counts for the next ``publish``."""
        self._send(self.block)
