"""What kernels are launched on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ..ops import Program

if TYPE_CHECKING:
    from .program import Launch


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
