"""A lazy sequence over a GGUF string array: only where each string lies is known at open."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

import numpy as np

from specrt._ext.string_scan import scan_strings
from specrt.errors import FormatError

__all__ = ["StringArray"]


class StringArray(Sequence[str]):
    """Strings of a file's metadata, decoded when they are read.

    Args:
        data: the file, ``[size]`` uint8.
        pos: where the first string's length is.
        count: how many strings there are; at most the bytes left / 8.
        label: what the strings are, for errors.

    Raises:
        FormatError: a string leaves the file.
    """

    __slots__ = ("_data", "_label", "_starts")

    def __init__(self, data: np.ndarray, pos: int, count: int, label: str) -> None:
        self._data, self._label = data, label
        self._starts = np.empty(count + 1, np.int64)
        inside = scan_strings(data, pos, self._starts)
        if inside < count:
            raise FormatError(
                f"{label}: string {inside} of {count} runs past the end of the file "
                f"({data.size} bytes); the file is truncated or damaged"
            )

    @property
    def end(self) -> int:
        """Where the array ends in the file."""
        return int(self._starts[-1]) - 8

    @property
    def spans(self) -> tuple[np.ndarray, np.ndarray]:
        """For C loops over all strings: where each lies in the file.

        Returns:
            The file ``[size]`` uint8, and ``starts [N + 1]`` int64: string i is
            ``data[starts[i] : starts[i + 1] - 8]``.
        """
        return self._data, self._starts

    def raw(self, index: int) -> bytes:
        """The bytes of string ``index``, as the file holds them."""
        if not -len(self) <= index < len(self):
            raise IndexError(f"{self._label}: index {index} is outside {len(self)} strings")
        index %= len(self)
        return self._data[self._starts[index] : self._starts[index + 1] - 8].tobytes()

    def _decode(self, raw: bytes, index: int) -> str:
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise FormatError(
                f"{self._label}: string {index} is not UTF-8 ({error.reason}); got {raw[:40]!r}; "
                "the file is damaged, or written by a converter that mangles text"
            ) from None

    def __len__(self) -> int:
        return len(self._starts) - 1

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return self._decode(self.raw(index), index)

    def __iter__(self) -> Iterator[str]:
        first, starts = int(self._starts[0]), (self._starts - self._starts[0]).tolist()
        block = self._data[first : self.end].tobytes()
        for i, start in enumerate(starts[:-1]):
            yield self._decode(block[start : starts[i + 1] - 8], i)

    def __repr__(self) -> str:
        return f"StringArray({self._label}, {len(self)} strings)"
