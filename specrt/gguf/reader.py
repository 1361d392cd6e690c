"""Open GGUF files over mmap: metadata and the tensor directory at once, tensor bytes never."""

from __future__ import annotations

import mmap
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self, TypeVar, overload

import numpy as np

from specrt.errors import FormatError, MismatchError, UnsupportedError
from specrt.gguf.parse import Header, parse_header
from specrt.gguf.strings import StringArray
from specrt.gguf.types import TensorType

__all__ = ["GGUFFile", "StringArray", "Tensor", "open_gguf"]

T = TypeVar("T")
D = TypeVar("D")
PART_NAME = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")


class _Required(Enum):
    REQUIRED = "required"


REQUIRED = _Required.REQUIRED


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """A tensor in its file.

    Args:
        name: the GGUF name.
        shape: in NumPy order: ``(rows, columns)``, the reverse of the file's.
        type: how a row is stored.
        raw: ``[*shape[:-1], row_bytes]`` uint8, a read-only view of the file.
    """

    name: str
    shape: tuple[int, ...]
    type: TensorType
    raw: np.ndarray

    @property
    def nbytes(self) -> int:
        return self.raw.nbytes

    def rows(self, start: int, stop: int) -> Tensor:
        """Rows ``start`` to ``stop`` of the first axis, without a copy."""
        if len(self.shape) < 2:
            raise ValueError(f"tensor {self.name!r} has one axis and so no rows to take")
        if not 0 <= start <= stop <= self.shape[0]:
            raise ValueError(f"rows {start}:{stop} are outside {self.name!r} of shape {self.shape}")
        shape = (stop - start, *self.shape[1:])
        return Tensor(self.name, shape, self.type, self.raw[start:stop])

    def numpy(self) -> np.ndarray:
        """The values: a read-only view, or for BF16 a float32 copy.

        Returns:
            ``[shape]`` float32, float16, float64 or a signed integer.

        Raises:
            UnsupportedError: the type is quantised.
        """
        if self.type.name == "BF16":
            return (self.raw.view("<u2").astype(np.uint32) << 16).view(np.float32)
        if self.type.dtype is None:
            raise UnsupportedError(
                f"tensor {self.name!r} is {self.type.name}, expected a plain type; dequantise it"
            )
        return self.raw.view(self.type.dtype)


class GGUFFile:
    """A model file, or all parts of a split one; made by ``open_gguf``.

    Attributes:
        path: the file that was asked for.
        parts: all files, in order.
        metadata: the first part's keys. Values are int, float, bool, str, read-only NumPy arrays
            (views of the file where it aligns them), ``StringArray``, or lists of such arrays.
        tensors: of all parts, in the order of the files.
    """

    def __init__(self, path: Path, parts: list[_Part]) -> None:
        self.path = path
        self.parts = tuple(part.path for part in parts)
        self.version = parts[0].header.version
        self.metadata: Mapping[str, Any] = MappingProxyType(parts[0].header.metadata)
        self.tensors: Mapping[str, Tensor] = MappingProxyType(_tensors(parts))
        self._places = _places(parts)
        self.size = sum(part.data.size for part in parts)

    @property
    def architecture(self) -> str:
        """``general.architecture``, which decides how the file is run."""
        return self.get("general.architecture", str)

    @overload
    def get(self, key: str, kind: type[T]) -> T: ...
    @overload
    def get(self, key: str, kind: type[T], default: D) -> T | D: ...
    def get(self, key: str, kind: type[T], default: D | _Required = REQUIRED) -> T | D:
        """Look a metadata value up, as ``get("llama.block_count", int)``.

        Args:
            key: the full key.
            kind: int, float (takes an int too), bool, str, ``np.ndarray``, ``StringArray``, list.
            default: for a key that is not there.

        Raises:
            MismatchError: the key is missing and has no default.
            FormatError: the value is of another kind.
        """
        if key not in self.metadata:
            if isinstance(default, _Required):
                raise MismatchError(
                    f"{self.path}: metadata key {key!r} is missing; expected {_name(kind)}: "
                    "convert the model again, or take another file"
                )
            return default
        value = self.metadata[key]
        if kind is float and type(value) is int:
            value = float(value)
        if type(value) is not kind:
            raise FormatError(
                f"{self.path}: metadata key {key!r} is {_name(type(value))}, expected "
                f"{_name(kind)}: convert the model again, or take another file"
            )
        return value

    def require_tensor(self, name: str, shape: tuple[int, ...] | None = None) -> Tensor:
        """The tensor of that name.

        Raises:
            MismatchError: it is not there, or not of ``shape`` (NumPy order).
        """
        if name not in self.tensors:
            raise MismatchError(
                f"{self.path}: tensor {name!r} is missing"
                + (f"; expected it with shape {shape}" if shape else "")
                + ": convert the model again, or take another file"
            )
        tensor = self.tensors[name]
        if shape is not None and tensor.shape != tuple(shape):
            raise MismatchError(
                f"{self.path}: tensor {name!r} has shape {tensor.shape}, expected {tuple(shape)} "
                "from the metadata: convert the model again, or take another file"
            )
        return tensor

    def forget(self, name: str) -> None:
        """Give the memory of a tensor back that was copied: its next reader gets it from the file.

        The pages at its ends stay, since they hold its neighbours too.
        """
        mapping, start, end = self._places[name]
        first, last = -(-start // mmap.PAGESIZE), end // mmap.PAGESIZE
        if first < last and hasattr(mmap, "MADV_DONTNEED"):
            size = (last - first) * mmap.PAGESIZE
            mapping.madvise(mmap.MADV_DONTNEED, first * mmap.PAGESIZE, size)

    def close(self) -> None:
        """Let the file go; arrays that are still held keep their part of it mapped."""
        self.metadata, self.tensors = MappingProxyType({}), MappingProxyType({})
        self._places = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"GGUFFile({str(self.path)!r}, {len(self.tensors)} tensors)"


@dataclass(frozen=True, slots=True)
class _Part:
    path: Path
    mapping: mmap.mmap
    data: np.ndarray
    header: Header


def open_gguf(path: str | os.PathLike[str]) -> GGUFFile:
    """Open a GGUF file (version 2 or 3, little-endian); any part of a split file opens all.

    Raises:
        FormatError: there is no such file, or it is truncated, inconsistent or hostile.
        UnsupportedError: a version, byte order or tensor type that specrt does not run.
    """
    path = Path(path)
    part = _open_part(path)
    count = _split_int(part, "split.count", 1)
    if count <= 1:
        return GGUFFile(path, [part])
    names = _part_names(path, count)
    own = _split_int(part, "split.no")
    parts = [part if i == own else _open_part(name) for i, name in enumerate(names)]
    for i, other in enumerate(parts):
        got = (_split_int(other, "split.no"), _split_int(other, "split.count"))
        if got != (i, count):
            raise FormatError(
                f"{other.path}: got (split.no, split.count) = {got}, expected {(i, count)} from "
                "its name: the parts are mixed up or renamed"
            )
    total = _split_int(parts[0], "split.tensors.count")
    found = sum(len(other.header.tensors) for other in parts)
    if total != found:
        raise FormatError(
            f"{path}: the parts hold {found} tensors, expected {total} (split.tensors.count); "
            "they do not belong together: fetch them again"
        )
    return GGUFFile(path, parts)


def _open_part(path: Path) -> _Part:
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else None
    except OSError as error:
        raise FormatError(
            f"{path}: cannot open it ({error.strerror}); expected a GGUF file: check the path"
        ) from error
    if mapping is None:
        raise FormatError(f"{path}: the file is empty, expected a GGUF file: fetch it again")
    data = np.frombuffer(mapping, np.uint8)
    return _Part(path, mapping, data, parse_header(data, path))


def _part_names(path: Path, count: int) -> list[Path]:
    match = PART_NAME.fullmatch(path.name)
    if match is None or int(match["count"]) != count:
        raise FormatError(
            f"{path}: it is one of {count} parts (split.count), expected a name like "
            f"model-00001-of-{count:05}.gguf: give the parts their names back"
        )
    names = [path.with_name(f"{match['stem']}-{i + 1:05}-of-{count:05}.gguf") for i in range(count)]
    missing = [str(name) for name in names if not name.is_file()]
    if missing:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        raise FormatError(
            f"{path}: of its {count} parts {', '.join(missing[:3])}{more} is missing; "
            "put all parts into one folder"
        )
    return names


def _split_int(part: _Part, key: str, default: int = -1) -> int:
    value = part.header.metadata.get(key, default)
    if type(value) is not int:
        raise FormatError(f"{part.path}: {key} is {_name(type(value))}, expected an integer")
    return value


def _tensors(parts: list[_Part]) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for part in parts:
        for info in part.header.tensors:
            if info.name in tensors:
                raise FormatError(
                    f"{part.path}: tensor {info.name!r} is in another part too; "
                    "the parts do not belong together: fetch them again"
                )
            stored = part.data[info.start : info.start + info.nbytes]
            raw = stored.reshape(*info.shape[:-1], info.row_bytes)
            tensors[info.name] = Tensor(info.name, info.shape, info.type, raw)
    return tensors


def _places(parts: list[_Part]) -> dict[str, tuple[mmap.mmap, int, int]]:
    """Where each tensor begins and ends in its file."""
    return {
        info.name: (part.mapping, info.start, info.start + info.nbytes)
        for part in parts
        for info in part.header.tensors
    }


def _name(kind: type) -> str:
    return {np.ndarray: "a numeric array", StringArray: "a string array"}.get(kind, kind.__name__)
