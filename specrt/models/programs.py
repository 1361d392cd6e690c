"""Recorded programs, found by what they are for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

MAX_PROGRAMS = 128
"""Recorded at a time: of a model of 30 layers 0.2 MiB each on a CPU, 0.4 MiB on CUDA."""

Recorded = TypeVar("Recorded")


class Programs(Generic[Recorded]):
    """Records what is asked for first; the one unused for longest makes room.

    Args:
        record: makes one for a key's parts.

    Attributes:
        recorded: all there are by their keys, the one used last behind the others.
    """

    def __init__(self, record: Callable[..., Recorded]) -> None:
        self._record = record
        self.recorded: dict[tuple[Any, ...], Recorded] = {}

    def get(self, *key: Any) -> Recorded:
        """The one for this key."""
        found = self.recorded.pop(key, None) or self._record(*key)
        self.recorded[key] = found
        if len(self.recorded) > MAX_PROGRAMS:
            del self.recorded[next(iter(self.recorded))]
        return found
