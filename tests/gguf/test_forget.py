"""Memory of tensors that were copied goes back, whole pages of them and nothing else."""

import mmap

import gguf
import numpy as np
import pytest

from specrt.gguf.reader import open_gguf
from tests.mappings import SMAPS, resident_bytes
from tests.rewriting import write_all

pytestmark = pytest.mark.skipif(not SMAPS.exists(), reason="looks at resident pages in /proc")

SIZES = {"first": 3 * 2**20 + 17, "tiny": 5, "second": 2 * 2**20 + 4096, "page": 6000}


@pytest.fixture
def values():
    random = np.random.default_rng(3)
    return {name: random.integers(-128, 128, size, dtype=np.int8) for name, size in SIZES.items()}


def write(path, values):
    writer = gguf.GGUFWriter(path, "llama")
    for name, array in values.items():
        writer.add_tensor(name, array)
    write_all(writer)
    return path


@pytest.fixture
def path(tmp_path, values):
    return write(tmp_path / "m.gguf", values)


def read_all(file):
    for tensor in file.tensors.values():
        tensor.raw.sum()


def whole_pages(file, name):
    raw = file.tensors[name].raw
    start, end = raw.ctypes.data, raw.ctypes.data + raw.nbytes
    return max(0, end // mmap.PAGESIZE - -(-start // mmap.PAGESIZE)) * mmap.PAGESIZE


@pytest.mark.parametrize("names", [["first"], ["second"], ["tiny", "page"], list(SIZES)])
def test_just_its_pages_go_and_come_back_from_the_file(path, values, names):
    file = open_gguf(path)
    read_all(file)
    before = resident_bytes(path)
    assert before >= sum(SIZES.values())
    for name in names:
        file.forget(name)
    gone = sum(whole_pages(file, name) for name in names)
    assert before - resident_bytes(path) == gone
    for name, array in values.items():
        assert np.array_equal(file.tensors[name].numpy(), array)
    assert resident_bytes(path) == before


def test_twice_and_unread_is_fine(path):
    file = open_gguf(path)
    for _ in range(2):
        file.forget("first")
    assert not whole_pages(file, "tiny")
    file.forget("tiny")


def test_a_tensor_of_another_part(tmp_path, values):
    for number in (0, 1):
        writer = gguf.GGUFWriter(tmp_path / f"m-0000{number + 1}-of-00002.gguf", "llama")
        for key, value in (("no", number), ("count", 2)):
            writer.add_uint16(f"split.{key}", value)
        writer.add_int32("split.tensors.count", 2)
        name = ("first", "second")[number]
        writer.add_tensor(name, values[name])
        write_all(writer)
    file = open_gguf(tmp_path / "m-00001-of-00002.gguf")
    read_all(file)
    before = [resident_bytes(part) for part in file.parts]
    file.forget("second")
    gone = whole_pages(file, "second")
    assert [resident_bytes(part) for part in file.parts] == [before[0], before[1] - gone]


def test_where_the_system_has_no_such_advice_all_stays(path, monkeypatch):
    file = open_gguf(path)
    read_all(file)
    before = resident_bytes(path)
    monkeypatch.delattr(mmap, "MADV_DONTNEED")
    file.forget("first")
    assert resident_bytes(path) == before
