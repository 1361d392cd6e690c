"""Mutated files: whatever happens to a header, the answer is a typed error or a usable file."""

import struct
import time

import pytest
from gguf_bytes import ARCHITECTURE, ARRAY, BOOL, STRING, array, gguf_file, key, string, tensor
from hypothesis import given, settings
from hypothesis import strategies as st

from specrt.errors import SpecrtError
from specrt.gguf.reader import GGUFFile, open_gguf

SEED = gguf_file(
    [
        ARCHITECTURE,
        key("general.alignment", 4, struct.pack("<I", 32)),
        key("split.count", 2, struct.pack("<H", 1)),
        key("f", 6, struct.pack("<f", 1.5)),
        key("ints", ARRAY, array(5, 3, struct.pack("<3i", 1, 2, 3))),
        key("bools", ARRAY, array(BOOL, 2, b"\0\1")),
        key("strings", ARRAY, array(STRING, 3, string("a") + string("") + string("ß"))),
        key("nested", ARRAY, array(ARRAY, 1, array(STRING, 1, string("x")))),
    ],
    [
        tensor("a", (32, 2), 8, 0),
        tensor("b", (8,), 0, 96),
        tensor("c", (4, 2, 2), 30, 128),
        tensor("d", (3,), 27, 160),
    ],
    bytes(184),
)
HEADER = len(SEED) - 184
POSITION = st.integers(0, HEADER - 1)
WORD = st.sampled_from([0, 1, 4, 7, 8, 9, 31, 2**16, 2**31, 2**32 - 1, 2**60, 2**63, 2**64 - 1])

FLIP = st.tuples(st.just("flip"), POSITION, st.integers(1, 255))
INSERT = st.tuples(st.just("insert"), POSITION, st.binary(min_size=1, max_size=16))
DELETE = st.tuples(st.just("delete"), POSITION, st.integers(1, 32))
REPLACE = st.tuples(st.just("replace"), POSITION, WORD.map(lambda word: struct.pack("<Q", word)))
TRUNCATE = st.tuples(st.just("truncate"), st.integers(0, len(SEED)), st.none())


def mutate(raw: bytes, kind: str, position: int, what) -> bytes:
    head, tail = raw[:position], raw[position:]
    match kind:
        case "flip":
            return head + bytes(b ^ what for b in tail[:1]) + tail[1:]
        case "insert":
            return head + what + tail
        case "delete":
            return head + tail[what:]
        case "replace":
            return head + what + tail[8:]
        case _:
            return head


def use(file: GGUFFile) -> None:
    """Read all that a file offers."""

    def read(value):
        if isinstance(value, list):
            for item in value:
                read(item)
        elif not isinstance(value, int | float | str):
            list(value)

    for value in file.metadata.values():
        read(value)
    for read_back in file.tensors.values():
        read_back.raw.sum()
        if not read_back.type.is_quantized:
            assert read_back.numpy().shape == read_back.shape


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("mutations") / "m.gguf"


def test_the_seed_itself_is_usable(path):
    path.write_bytes(SEED)
    file = open_gguf(path)
    assert len(file.tensors) == 4 and len(file.metadata) == 8
    use(file)


@settings(max_examples=1500, deadline=None)
@given(
    mutations=st.lists(st.one_of(FLIP, INSERT, DELETE, REPLACE, TRUNCATE), min_size=1, max_size=4)
)
def test_mutated_header_is_an_error_or_a_file(mutations, path):
    raw = SEED
    for mutation in mutations:
        raw = mutate(raw, *mutation)
    path.write_bytes(raw)
    start = time.perf_counter()
    try:
        use(open_gguf(path))
    except SpecrtError as error:
        assert str(error)
    assert time.perf_counter() - start < 1


@pytest.mark.parametrize("word", [0, 1, 255, 2**32 - 1, 2**63, 2**64 - 1])
def test_every_word_of_the_header_replaced(word, path):
    for position in range(HEADER):
        path.write_bytes(mutate(SEED, "replace", position, struct.pack("<Q", word)))
        try:
            use(open_gguf(path))
        except SpecrtError as error:
            assert str(error)
