"""Copies to the device that do not wait for it."""

from __future__ import annotations

from typing import Any

import numpy as np


class PinnedSender:
    """Copies host values into a device array by way of pinned memory.

    The pinned memory is rewritten only once the copy before is done.

    Args:
        cupy: the module.
        stream: where copies are queued.
        array: of the device.
    """

    def __init__(self, cupy: Any, stream: Any, array: Any) -> None:
        self._array = array
        self._stream = stream
        self._memory = cupy.cuda.alloc_pinned_memory(array.nbytes)
        values = np.frombuffer(self._memory, array.dtype, array.size)
        self._staged = values.reshape(array.shape)
        self._sent = cupy.cuda.Event(disable_timing=True)

    def __call__(self, values: np.ndarray) -> None:
        """Queue the copy to the array's first places; ``values`` may change at once."""
        places = slice(len(values))
        self._sent.synchronize()
        self._staged[places] = values
        self._array[places].set(self._staged[places], stream=self._stream)
        self._sent.record(self._stream)
