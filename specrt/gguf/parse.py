"""Parse one GGUF file's header: metadata and tensor directory, every count checked first.

Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from specrt.errors import FormatError, UnsupportedError
from specrt.gguf.strings import StringArray
from specrt.gguf.types import TensorType, type_by_id

__all__ = ["Header", "TensorInfo", "parse_header"]

STRING, ARRAY = 8, 9
# struct and NumPy share these format characters
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q",
           12: "d"}  # fmt: skip
DEFAULT_ALIGNMENT = 32

# Far above what real files hold; they bound memory and time for files made to exhaust them.
MAX_ENTRIES = 1 << 17  # keys; tensors; arrays that lie in arrays, together
MAX_DEPTH = 4
MAX_KEY_BYTES = (1 << 16) - 1
MAX_STRING_BYTES = 1 << 24
MAX_ITEMS = 1 << 24  # numbers or strings in an array
# Of all of a file's metadata together: a sparse file costs nothing to make.
MAX_COPIED_BYTES = 1 << 26  # strings, keys, names, and arrays that the file leaves unaligned
MAX_TOTAL_ITEMS = 1 << 25  # numbers and strings in arrays


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """A directory entry: ``shape`` in NumPy order, ``start`` in bytes from the file's start."""

    name: str
    shape: tuple[int, ...]
    type: TensorType
    start: int

    @property
    def row_bytes(self) -> int:
        return self.type.row_bytes(self.shape[-1])

    @property
    def nbytes(self) -> int:
        return prod(self.shape[:-1]) * self.row_bytes


@dataclass(frozen=True, slots=True)
class Header:
    """What precedes the tensor data."""

    version: int
    metadata: dict[str, Any]
    tensors: list[TensorInfo]


class Cursor:
    """Reads little-endian fields of a file; no read goes past its end."""

    def __init__(self, data: np.ndarray, path: Path) -> None:
        self.data, self.path, self.pos = data, path, 0
        self._bytes = data.data
        self._arrays_left = MAX_ENTRIES
        self._bytes_left = MAX_COPIED_BYTES
        self._items_left = MAX_TOTAL_ITEMS

    @property
    def left(self) -> int:
        return self.data.size - self.pos

    def error(self, message: str) -> FormatError:
        return FormatError(f"{self.path}: {message} (at byte {self.pos})")

    def scalar(self, code: str) -> Any:
        size = struct.calcsize("<" + code)
        if size > self.left:
            raise self.error(
                f"the header ends after {self.left} of {size} bytes of a field; "
                "the file is truncated: fetch it again"
            )
        (value,) = struct.unpack_from("<" + code, self._bytes, self.pos)
        self.pos += size
        return value

    def boolean(self) -> bool:
        value = self.scalar("B")
        if value > 1:
            raise self.error(f"got {value} for a bool, expected 0 or 1; the file is damaged")
        return bool(value)

    def count(self, what: str, item_bytes: int, limit: int) -> int:
        """Read how many items follow; each takes at least ``item_bytes``."""
        value = self.scalar("Q")
        room = min(self.left // item_bytes, limit)
        if value > room:
            raise self.error(
                f"got {value} {what}, expected at most {room} (limit {limit}, {self.left} bytes "
                "left); the file is truncated or damaged"
            )
        return value

    def string(self, what: str, limit: int = MAX_STRING_BYTES) -> str:
        length = self.count(f"bytes in {what}", 1, min(limit, self._bytes_left))
        self._bytes_left -= length
        raw = self.data[self.pos : self.pos + length].tobytes()
        try:
            text = raw.decode()
        except UnicodeDecodeError as error:
            raise self.error(
                f"{what} is not UTF-8 ({error.reason}); got {raw[:40]!r}; the file is damaged"
            ) from None
        self.pos += length
        return text

    def value(self, type_id: int, key: str, depth: int = 0) -> Any:
        """Read a metadata value of the given GGUF type."""
        if type_id == STRING:
            return self.string(f"the value of {key!r}")
        if type_id == ARRAY:
            return self._array(key, depth + 1)
        if type_id not in SCALARS:
            raise self.error(
                f"{key!r} has value type {type_id}; expected 0 to 12: the file is damaged"
            )
        return self.boolean() if SCALARS[type_id] == "?" else self.scalar(SCALARS[type_id])

    def _array(self, key: str, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise self.error(f"{key!r} nests arrays deeper than {MAX_DEPTH}; the file is damaged")
        type_id = self.scalar("I")
        if type_id == STRING:
            count = self._items(f"strings in {key!r}", 8)
            strings = StringArray(self.data, self.pos, count, f"{self.path}: {key!r}")
            self.pos = strings.end
            return strings
        if type_id == ARRAY:
            count = self.count(f"arrays in {key!r}", 12, self._arrays_left)
            self._arrays_left -= count
            return [self._array(key, depth + 1) for _ in range(count)]
        return self._numbers(key, type_id)

    def _numbers(self, key: str, type_id: int) -> np.ndarray:
        """A read-only view of the file; a copy where the file leaves the items unaligned."""
        if type_id not in SCALARS:
            raise self.error(
                f"{key!r} is an array of type {type_id}; expected 0 to 12: the file is damaged"
            )
        dtype = np.dtype(SCALARS[type_id]).newbyteorder("<")
        count = self._items(f"values in {key!r}", dtype.itemsize)
        stored = self.data[self.pos : self.pos + count * dtype.itemsize]
        if dtype == np.bool_ and count and stored.max() > 1:
            raise self.error(f"{key!r} holds bools other than 0 and 1; the file is damaged")
        self.pos += stored.size
        numbers = stored.view(dtype)
        if not numbers.flags.aligned:
            numbers = self._aligned(numbers, key)
        numbers.flags.writeable = False
        return numbers

    def _aligned(self, numbers: np.ndarray, key: str) -> np.ndarray:
        if numbers.nbytes > self._bytes_left:
            raise self.error(
                f"got {numbers.nbytes} bytes of unaligned values in {key!r}, expected at most "
                f"{self._bytes_left} (of {MAX_COPIED_BYTES} in all); the file is damaged"
            )
        self._bytes_left -= numbers.nbytes
        return np.require(numbers, requirements="A")

    def _items(self, what: str, item_bytes: int) -> int:
        """Read how many numbers or strings of an array follow."""
        count = self.count(what, item_bytes, min(MAX_ITEMS, self._items_left))
        self._items_left -= count
        return count


def parse_header(data: np.ndarray, path: Path) -> Header:
    """Parse what precedes the tensor data, and check where every tensor lies.

    Args:
        data: the file, ``[size]`` uint8.
        path: its name, for errors.

    Raises:
        FormatError: the file is not GGUF, truncated, inconsistent or hostile.
        UnsupportedError: a version, byte order or tensor type that specrt does not run.
    """
    cursor = Cursor(data, path)
    version = _version(cursor)
    num_tensors = cursor.count("tensors", 24, MAX_ENTRIES)
    num_keys = cursor.count("metadata keys", 13, MAX_ENTRIES)
    metadata = _metadata(cursor, num_keys)
    alignment = _alignment(metadata, path)
    infos = [_tensor_info(cursor) for _ in range(num_tensors)]
    data_start = -(-cursor.pos // alignment) * alignment
    return Header(version, metadata, _placed(infos, data_start, alignment, data.size, path))


def _version(cursor: Cursor) -> int:
    magic = cursor.data[:4].tobytes()
    if magic != b"GGUF":
        raise FormatError(
            f"{cursor.path}: got {magic!r} as the first bytes, expected b'GGUF'; "
            "this is no GGUF file"
        )
    cursor.pos = 4
    version = cursor.scalar("I")
    if version and version & 0xFFFF == 0:
        raise UnsupportedError(
            f"{cursor.path}: this GGUF file is big-endian; specrt reads little-endian files: "
            "convert it with gguf-convert-endian"
        )
    if version not in (2, 3):
        raise UnsupportedError(
            f"{cursor.path}: got GGUF version {version}, expected 2 or 3; "
            "convert the model again with a current converter"
        )
    return version


def _metadata(cursor: Cursor, num_keys: int) -> dict[str, Any]:
    metadata: dict[str, Any] = {}
    for i in range(num_keys):
        key = cursor.string(f"metadata key {i}", MAX_KEY_BYTES)
        if key in metadata:
            raise cursor.error(f"metadata key {key!r} occurs twice; the file is damaged")
        metadata[key] = cursor.value(cursor.scalar("I"), key)
    return metadata


def _alignment(metadata: dict[str, Any], path: Path) -> int:
    value = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if type(value) is not int or value < 8 or value & (value - 1):
        raise FormatError(
            f"{path}: got general.alignment {value!r}, expected a power of two of at least 8; "
            "the file is damaged"
        )
    return value


def _tensor_info(cursor: Cursor) -> TensorInfo:
    """Read an entry; its ``start`` still counts from the start of the tensor data."""
    name = cursor.string("a tensor name", MAX_KEY_BYTES)
    num_dims = cursor.scalar("I")
    if not 1 <= num_dims <= 4:
        raise cursor.error(
            f"tensor {name!r} has {num_dims} dimensions, expected 1 to 4; the file is damaged"
        )
    shape = tuple(cursor.scalar("Q") for _ in range(num_dims))[::-1]
    if 0 in shape:
        raise cursor.error(f"tensor {name!r} has an empty shape {shape}; the file is damaged")
    type_id, offset = cursor.scalar("I"), cursor.scalar("Q")
    try:
        tensor_type = type_by_id(type_id)
    except (FormatError, UnsupportedError) as error:
        raise type(error)(f"{cursor.path}: tensor {name!r}: {error}") from None
    if shape[-1] % tensor_type.block_size:
        raise cursor.error(
            f"tensor {name!r} has rows of {shape[-1]} values, expected a multiple of "
            f"{tensor_type.block_size} ({tensor_type.name}); the file is damaged"
        )
    return TensorInfo(name, shape, tensor_type, offset)


def _placed(
    infos: list[TensorInfo], data_start: int, alignment: int, size: int, path: Path
) -> list[TensorInfo]:
    """Check offsets, and count them from the file's start."""
    names: set[str] = set()
    placed = []
    for info in infos:
        start, end = data_start + info.start, data_start + info.start + info.nbytes
        if info.name in names:
            raise FormatError(f"{path}: tensor {info.name!r} occurs twice; the file is damaged")
        names.add(info.name)
        if info.start % alignment:
            raise FormatError(
                f"{path}: tensor {info.name!r} starts at offset {info.start}, expected a multiple "
                f"of general.alignment ({alignment}); the file is damaged"
            )
        if end > size:
            raise FormatError(
                f"{path}: tensor {info.name!r} of shape {info.shape} in {info.type.name} ends at "
                f"byte {end}, but the file has {size}; it is truncated or damaged: fetch it again"
            )
        placed.append(TensorInfo(info.name, info.shape, info.type, start))
    for before, after in pairwise(sorted(placed, key=lambda info: info.start)):
        if before.start + before.nbytes > after.start:
            raise FormatError(
                f"{path}: tensors {before.name!r} and {after.name!r} overlap; the file is damaged"
            )
    return placed
