"""Hostile files, one defect each: a typed error in bounded time and memory."""

import struct
import time
import tracemalloc

import pytest
from gguf_bytes import (
    ARCHITECTURE,
    ARRAY,
    BOOL,
    STRING,
    UINT32,
    array,
    gguf_file,
    key,
    string,
    tensor,
)

from specrt.errors import FormatError, MismatchError, UnsupportedError
from specrt.gguf import parse
from specrt.gguf.reader import open_gguf

HUGE = 2**64 - 1
DATA = bytes(256)


def nested(depth: int) -> bytes:
    value = array(UINT32, 0, b"")
    for _ in range(depth - 1):
        value = array(ARRAY, 1, value)
    return key("deep", ARRAY, value)


def with_key(*keys: bytes) -> bytes:
    return gguf_file([ARCHITECTURE, *keys])


def with_tensor(*tensors: bytes, data: bytes = DATA) -> bytes:
    return gguf_file(tensors=list(tensors), data=data)


CASES = {
    "empty": (b"", "is empty"),
    "magic": (gguf_file(magic=b"ggml"), "expected b'GGUF'"),
    "only magic": (b"GGUF", "truncated"),
    "truncated header": (gguf_file()[:-9], "truncated"),
    "tensor count": (gguf_file(num_tensors=HUGE), f"got {HUGE} tensors"),
    "key count": (gguf_file(num_keys=HUGE), f"got {HUGE} metadata keys"),
    "key length": (with_key(struct.pack("<Q", HUGE) + b"k"), "bytes in metadata key 1"),
    "key too long": (with_key(key("k" * 65536, UINT32, bytes(4))), "65536 bytes in metadata key"),
    "key not UTF-8": (with_key(key(b"\xff\xfe", UINT32, bytes(4))), "key 1 is not UTF-8"),
    "value not UTF-8": (with_key(key("k", STRING, string(b"\xc3("))), "'k' is not UTF-8"),
    "duplicate key": (with_key(ARCHITECTURE), "'general.architecture' occurs twice"),
    "value type": (with_key(key("k", 13, bytes(8))), "value type 13"),
    "item type": (with_key(key("k", ARRAY, array(99, 1, bytes(8)))), "array of type 99"),
    "bool": (with_key(key("k", BOOL, b"\x02")), "got 2 for a bool"),
    "bool array": (with_key(key("k", ARRAY, array(BOOL, 3, b"\0\1\2"))), "bools other than"),
    "string length": (with_key(key("k", STRING, struct.pack("<Q", HUGE))), "bytes in the value"),
    "array count": (with_key(key("k", ARRAY, array(UINT32, 1 << 40, bytes(8)))), "values in 'k'"),
    "string count": (with_key(key("k", ARRAY, array(STRING, 1 << 40, bytes(8)))), "strings in 'k'"),
    "string in array": (
        with_key(key("k", ARRAY, array(STRING, 2, string("a") + struct.pack("<Q", HUGE)))),
        "'k': string 1 of 2 runs past the end",
    ),
    "nested count": (with_key(key("k", ARRAY, array(ARRAY, 1 << 40, bytes(24)))), "arrays in 'k'"),
    "nested depth": (with_key(nested(5)), "deeper than 4"),
    "nested depth of a thousand": (with_key(nested(1000)), "deeper than 4"),
    "no dimensions": (with_tensor(tensor("t", ())), "has 0 dimensions"),
    "five dimensions": (with_tensor(tensor("t", (1,) * 5)), "has 5 dimensions"),
    "dimension count": (
        gguf_file(tensors=[string("t") + struct.pack("<I", 2**32 - 1) + bytes(64)]),
        "has 4294967295 dimensions",
    ),
    "zero dimension": (with_tensor(tensor("t", (4, 0))), r"empty shape \(0, 4\)"),
    "overflow": (with_tensor(tensor("t", (1 << 32, 1 << 32, 1 << 32, 1 << 32))), "ends at byte"),
    "wraps to zero": (with_tensor(tensor("t", (1 << 63, 2))), "ends at byte"),
    "partial block": (with_tensor(tensor("t", (48, 1), 8)), "multiple of 32 .Q8_0."),
    "unknown type": (with_tensor(tensor("t", (1,), 77)), "'t': got tensor type id 77"),
    "past the end": (with_tensor(tensor("t", (4,), 0, 256)), "truncated or damaged"),
    "data truncated": (with_tensor(tensor("t", (64,)), data=DATA[:-1]), "truncated or damaged"),
    "offset wraps": (with_tensor(tensor("t", (4,), 0, 2**64 - 32)), "truncated or damaged"),
    "unaligned": (with_tensor(tensor("t", (4,), 0, 4)), "multiple of general.alignment"),
    "overlap": (
        with_tensor(tensor("a", (16,), 0, 32), tensor("b", (16,), 0, 0)),
        "'b' and 'a' overlap",
    ),
    "duplicate tensor": (
        with_tensor(tensor("t", (8,), 0, 0), tensor("t", (8,), 0, 32)),
        "'t' occurs twice",
    ),
    **{
        f"alignment {value}": (
            with_key(key("general.alignment", UINT32, struct.pack("<I", value))),
            f"general.alignment {value}, expected a power of two",
        )
        for value in (0, 4, 24, 2**32 - 1)
    },
    "alignment type": (with_key(key("general.alignment", STRING, string("32"))), "alignment '32'"),
    "split count type": (with_key(key("split.count", STRING, string("2"))), "split.count is str"),
}


@pytest.mark.parametrize("case", CASES)
def test_defect_is_a_format_error_that_names_the_file(case, tmp_path):
    raw, message = CASES[case]
    path = tmp_path / "bad.gguf"
    path.write_bytes(raw)
    tracemalloc.start()
    start = time.perf_counter()
    with pytest.raises(FormatError, match=message) as caught:
        open_gguf(path)
    seconds, (_, peak) = time.perf_counter() - start, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert str(path) in str(caught.value)
    assert seconds < 1 and peak < 1 << 20


def sparse_file(path, parts):
    """Metadata keys from parts: bytes, or a number of zeros that take no room on the disk."""
    with open(path, "wb") as file:
        count = sum(isinstance(part, bytes) for part in parts)
        file.write(b"GGUF" + struct.pack("<IQQ", 3, 0, count))
        for part in parts:
            if isinstance(part, bytes):
                file.write(part)
            else:
                file.seek(part, 1)
        file.truncate(file.tell())
    return path


def zeros(name, value_type, header, size):
    """A key whose value is the header and that many zeros."""
    return [key(name, value_type, header), size]


def test_strings_are_bounded_together(tmp_path):
    parts = [
        p for i in range(200) for p in zeros(f"{i}", STRING, struct.pack("<Q", 1 << 24), 1 << 24)
    ]
    path = sparse_file(tmp_path / "sparse.gguf", parts)
    assert path.stat().st_size > 3 << 30
    tracemalloc.start()
    start = time.perf_counter()
    with pytest.raises(FormatError, match=r"bytes in the value of '3'.*limit"):
        open_gguf(path)
    seconds, (_, peak) = time.perf_counter() - start, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert seconds < 5 and peak < 128 << 20


@pytest.mark.parametrize(
    ("item_type", "item_bytes", "what"),
    [(STRING, 8, "strings"), (BOOL, 1, "values"), (UINT32, 4, "values")],
)
def test_array_items_are_bounded_together(item_type, item_bytes, what, tmp_path, monkeypatch):
    monkeypatch.setattr(parse, "MAX_ITEMS", 1000)
    monkeypatch.setattr(parse, "MAX_TOTAL_ITEMS", 2500)
    header = struct.pack("<IQ", item_type, 1000)
    parts = [p for i in range(3) for p in zeros(f"{i}", ARRAY, header, 1000 * item_bytes)]
    with pytest.raises(FormatError, match=f"1000 {what} in '2'.*limit 500"):
        open_gguf(sparse_file(tmp_path / "sparse.gguf", parts))
    assert len(open_gguf(sparse_file(tmp_path / "two.gguf", parts[:4])).metadata["1"]) == 1000


@pytest.mark.parametrize("shift", range(4))
def test_copies_of_unaligned_arrays_are_bounded_together(shift, tmp_path, monkeypatch):
    monkeypatch.setattr(parse, "MAX_COPIED_BYTES", 10_000)
    header = struct.pack("<IQ", UINT32, 1000)
    name = "k" * (7 + shift)  # what precedes the numbers is then a multiple of 4, plus the shift
    parts = [p for i in range(8) for p in zeros(f"{i}{name}", ARRAY, header, 4000)]
    path = sparse_file(tmp_path / "sparse.gguf", parts)
    if shift == 0:
        assert len(open_gguf(path).metadata) == 8
    else:
        with pytest.raises(FormatError, match="4000 bytes of unaligned values"):
            open_gguf(path)


def test_every_truncation_is_a_format_error(tmp_path):
    raw = gguf_file(
        [ARCHITECTURE, nested(2), key("s", ARRAY, array(STRING, 2, string("a") + string("b")))],
        [tensor("t", (8, 2))],
        bytes(64),
    )
    path = tmp_path / "bad.gguf"
    path.write_bytes(raw)
    assert open_gguf(path).tensors["t"].shape == (2, 8)
    for length in range(len(raw)):
        path.write_bytes(raw[:length])
        with pytest.raises(FormatError):
            open_gguf(path)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (gguf_file(version=1), "got GGUF version 1, expected 2 or 3"),
        (gguf_file(version=0), "got GGUF version 0, expected 2 or 3"),
        (gguf_file(version=4), "got GGUF version 4, expected 2 or 3"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
        (with_tensor(tensor("t", (256,), 19)), "'t': tensor type IQ1_S .*knows F32, F16, Q4_0"),
    ],
)
def test_what_specrt_does_not_run_is_unsupported(raw, message, tmp_path):
    path = tmp_path / "other.gguf"
    path.write_bytes(raw)
    with pytest.raises(UnsupportedError, match=message):
        open_gguf(path)


def test_version_2_is_read(tmp_path):
    path = tmp_path / "v2.gguf"
    path.write_bytes(gguf_file(version=2))
    assert open_gguf(path).architecture == "llama"


def test_missing_architecture(tmp_path):
    path = tmp_path / "none.gguf"
    path.write_bytes(gguf_file([]))
    with pytest.raises(MismatchError, match=r"'general\.architecture' is missing"):
        _ = open_gguf(path).architecture


@pytest.mark.parametrize("name", ["absent.gguf", "."])
def test_unreadable_path(name, tmp_path):
    with pytest.raises(FormatError, match="cannot open it"):
        open_gguf(tmp_path / name)


def test_string_that_is_not_text_fails_when_it_is_read(tmp_path):
    path = tmp_path / "s.gguf"
    items = string("fine") + string(b"\xff") + string("too")
    path.write_bytes(with_key(key("k", ARRAY, array(STRING, 3, items))))
    strings = open_gguf(path).metadata["k"]
    assert strings[0] == "fine" and strings[2] == "too" and strings.raw(1) == b"\xff"
    for read in (lambda: strings[1], lambda: list(strings)):
        with pytest.raises(FormatError, match="'k': string 1 is not UTF-8"):
            read()
