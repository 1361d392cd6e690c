"""GGUF files made byte by byte, so that tests can make wrong ones."""

import struct

STRING, ARRAY, UINT32, BOOL = 8, 9, 4, 7


def string(text: str | bytes) -> bytes:
    raw = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(raw)) + raw


def key(name: str | bytes, value_type: int, value: bytes) -> bytes:
    return string(name) + struct.pack("<I", value_type) + value


def array(item_type: int, count: int, items: bytes) -> bytes:
    return struct.pack("<IQ", item_type, count) + items


def tensor(name: str, dims: tuple[int, ...], type_id: int = 0, offset: int = 0) -> bytes:
    """A directory entry; ``dims`` in the file's order (columns first)."""
    packed = struct.pack(f"<I{len(dims)}Q", len(dims), *dims)
    return string(name) + packed + struct.pack("<IQ", type_id, offset)


ARCHITECTURE = key("general.architecture", STRING, string("llama"))


def gguf_file(
    keys: list[bytes] | None = None,
    tensors: list[bytes] | None = None,
    data: bytes = b"",
    *,
    magic: bytes = b"GGUF",
    version: int = 3,
    num_keys: int | None = None,
    num_tensors: int | None = None,
) -> bytes:
    keys = [ARCHITECTURE] if keys is None else keys
    tensors = tensors or []
    counts = struct.pack(
        "<IQQ",
        version,
        len(tensors) if num_tensors is None else num_tensors,
        len(keys) if num_keys is None else num_keys,
    )
    header = magic + counts + b"".join(keys) + b"".join(tensors)
    return header + bytes(-len(header) % 32) + data if tensors else header
