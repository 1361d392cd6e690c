"""Split files: any part opens all, and parts that do not belong together are refused."""

import shutil

import gguf
import numpy as np
import pytest

from specrt.errors import FormatError
from specrt.gguf.reader import open_gguf
from tests.rewriting import write_all


@pytest.fixture
def parts(tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama", split_max_tensors=2)
    writer.add_uint32("llama.block_count", 7)
    for i in range(5):
        writer.add_tensor(f"t{i}", np.full((2, 3), i, np.float32))
    write_all(writer)
    paths = sorted(tmp_path.glob("m-*.gguf"))
    assert [p.name for p in paths] == [f"m-0000{i}-of-00003.gguf" for i in (1, 2, 3)]
    return paths


@pytest.mark.parametrize("opened", [0, 1, 2])
def test_any_part_opens_all(parts, opened):
    file = open_gguf(parts[opened])
    assert file.path == parts[opened] and list(file.parts) == parts
    assert file.get("llama.block_count", int) == 7
    assert file.size == sum(p.stat().st_size for p in parts)
    for i in range(5):
        assert (file.require_tensor(f"t{i}", (2, 3)).numpy() == i).all()


@pytest.mark.parametrize("gone", [0, 1, 2])
def test_missing_part_is_named(parts, gone):
    parts[gone].unlink()
    with pytest.raises(FormatError, match=f"m-0000{gone + 1}-of-00003.gguf is missing"):
        open_gguf(parts[(gone + 1) % 3])


def test_renamed_part_is_refused(parts):
    shutil.copy(parts[0], parts[0].with_name("other.gguf"))
    with pytest.raises(FormatError, match=r"one of 3 parts .* name like model-00001-of-00003"):
        open_gguf(parts[0].with_name("other.gguf"))


def test_mixed_up_parts_are_refused(parts):
    shutil.copy(parts[1], parts[2])
    with pytest.raises(FormatError, match=r"got \(split.no, split.count\) = \(1, 3\)"):
        open_gguf(parts[0])


def test_missing_tensors_are_counted(parts, tmp_path):
    writer = gguf.GGUFWriter(parts[2], "llama")
    writer.add_uint16("split.no", 2)
    writer.add_uint16("split.count", 3)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(FormatError, match="hold 4 tensors, expected 5"):
        open_gguf(parts[0])


def test_tensor_in_two_parts_is_refused(parts):
    raw = parts[1].read_bytes()
    parts[1].write_bytes(raw.replace(b"t2", b"t0", 1))
    with pytest.raises(FormatError, match="'t0' is in another part"):
        open_gguf(parts[0])
