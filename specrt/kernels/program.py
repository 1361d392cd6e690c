"""Recorded launches, run again with the same arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from .device import Device


class Launch(NamedTuple):
    """One call of ``Device.launch``."""

    file: str
    entry: str
    grid: Sequence[int]
    block: int
    args: Sequence[Any]
    shared_bytes: int
    defines: tuple[str, ...]

    def on(self, device: Device) -> None:
        """Make the call."""
        device.launch(*self)


class Recorder:
    """A device that notes launches and makes none."""

    def __init__(self) -> None:
        self.launches: list[Launch] = []

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
        """Note one: see ``Device``."""
        self.launches.append(Launch(file, entry, grid, block, args, shared_bytes, defines))


class PlainProgram:
    """Launches one by one."""

    def __init__(self, device: Device, launches: Sequence[Launch]) -> None:
        self._device = device
        self._launches = launches

    def prepare(self) -> None:
        """Nothing: kernels are compiled when first launched."""

    def run(self) -> None:
        """Launch every kernel, in order."""
        for launch in self._launches:
            launch.on(self._device)

    def repeat(self, times: int, until: Any) -> int:
        """Run that often: to look at ``until`` would be to wait; returns how often."""
        for _ in range(times):
            self.run()
        return times
