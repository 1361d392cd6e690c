"""The reader against the gguf package, on whole files."""

import time
from pathlib import Path

import gguf
import numpy as np
import pytest

from specrt.errors import FormatError, MismatchError, UnsupportedError
from specrt.gguf.reader import StringArray, open_gguf
from specrt.gguf.types import TENSOR_TYPES, type_by_id, type_by_name
from tests.rewriting import write_all

GOLDEN = Path(__file__).parents[1] / "golden/llama-quant/model.gguf"


def test_types_equal_the_gguf_package():
    for t in TENSOR_TYPES:
        member = gguf.GGMLQuantizationType(t.id)
        assert (t.name, gguf.GGML_QUANT_SIZES[member]) == (
            member.name,
            (t.block_size, t.block_bytes),
        )
        assert type_by_id(t.id) is type_by_name(t.name) is t


def test_every_type_of_the_gguf_package_is_run_or_refused_by_name():
    for member in gguf.GGMLQuantizationType:
        try:
            assert type_by_id(member.value).name == member.name
        except UnsupportedError as error:
            assert f"tensor type {member.name} " in str(error)


def test_golden_file_equals_the_gguf_package():
    ours, theirs = open_gguf(GOLDEN), gguf.GGUFReader(GOLDEN)
    keys = {k: f for k, f in theirs.fields.items() if not k.startswith("GGUF.")}
    assert list(ours.metadata) == list(keys)
    for name, field in keys.items():
        value, expected = ours.metadata[name], field.contents()
        assert (value if isinstance(value, str | int | float) else list(value)) == expected
    assert list(ours.tensors) == [t.name for t in theirs.tensors]
    for expected in theirs.tensors:
        tensor = ours.tensors[expected.name]
        assert tensor.shape == tuple(expected.shape[::-1])
        assert tensor.type.name == expected.tensor_type.name
        assert tensor.nbytes == expected.n_bytes
        assert tensor.raw.tobytes() == expected.data.tobytes()
        assert not tensor.raw.flags.writeable
    assert ours.architecture == "llama"
    assert ours.size == GOLDEN.stat().st_size


@pytest.fixture
def written(tmp_path):
    """A file of the gguf package with every value type and plain tensor type."""
    rng = np.random.default_rng(5)
    writer = gguf.GGUFWriter(tmp_path / "all.gguf", "llama")
    for bits in (8, 16, 32, 64):
        getattr(writer, f"add_uint{bits}")(f"u{bits}", 2**bits - 1)
        getattr(writer, f"add_int{bits}")(f"i{bits}", -(2 ** (bits - 1)))
    writer.add_float32("f32", 0.1)
    writer.add_float64("f64", 0.1)
    writer.add_bool("yes", True)
    writer.add_string("text", "naïve ☃")
    writer.add_array("ints", [-1, 2, 3])
    writer.add_array("floats", [0.5, -2.0])
    writer.add_array("bools", [True, False, True])
    writer.add_array("strings", ["a", "", "ß☃"])
    writer.add_array("nested", [[1, 2], [3]])
    tensors = {
        "f32": rng.standard_normal((3, 5)).astype(np.float32),
        "f16": rng.standard_normal((2, 3, 7)).astype(np.float16),
        "f64": rng.standard_normal((2, 2, 1, 3)),
        **{f"i{b}": rng.integers(-100, 100, (4, 3)).astype(f"i{b // 8}") for b in (8, 16, 32, 64)},
    }
    for name, values in tensors.items():
        writer.add_tensor(name, values)
    tensors["bf16"] = rng.standard_normal((3, 6)).astype(np.float32)
    tensors["bf16"].view("<u4")[:] &= 0xFFFF0000
    stored = (tensors["bf16"].view("<u4") >> 16).astype("<u2")
    writer.add_tensor("bf16", stored.view(np.uint8), raw_dtype=gguf.GGMLQuantizationType.BF16)
    write_all(writer)
    return tmp_path / "all.gguf", tensors


def test_metadata_values_have_python_and_numpy_types(written):
    metadata = open_gguf(written[0]).metadata
    for bits in (8, 16, 32, 64):
        assert metadata[f"u{bits}"] == 2**bits - 1 and type(metadata[f"u{bits}"]) is int
        assert metadata[f"i{bits}"] == -(2 ** (bits - 1))
    assert metadata["f32"] == float(np.float32(0.1)) and metadata["f64"] == 0.1
    assert metadata["yes"] is True
    assert metadata["text"] == "naïve ☃"
    for name, expected, dtype in [
        ("ints", [-1, 2, 3], np.int32),
        ("floats", [0.5, -2.0], np.float32),
        ("bools", [True, False, True], np.bool_),
    ]:
        assert metadata[name].dtype == dtype and metadata[name].tolist() == expected
        assert metadata[name].flags.aligned and not metadata[name].flags.writeable
    assert [part.tolist() for part in metadata["nested"]] == [[1, 2], [3]]


def test_string_array_is_a_sequence(written):
    strings = open_gguf(written[0]).get("strings", StringArray)
    assert list(strings) == [strings[i] for i in range(3)] == strings[:] == ["a", "", "ß☃"]
    assert strings[-1] == "ß☃" and strings.raw(2) == "ß☃".encode()
    assert strings[::-1] == ["ß☃", "", "a"] and len(strings) == 3
    with pytest.raises(IndexError, match="index 3 is outside 3 strings"):
        strings[3]


def test_tensors_read_back(written):
    path, tensors = written
    file = open_gguf(path)
    assert set(file.tensors) == set(tensors)
    for name, expected in tensors.items():
        values = file.require_tensor(name, expected.shape).numpy()
        assert values.dtype == expected.dtype
        np.testing.assert_array_equal(values, expected)


def test_rows_are_views(written):
    file = open_gguf(written[0])
    tensor = file.tensors["f32"]
    np.testing.assert_array_equal(tensor.rows(1, 3).numpy(), written[1]["f32"][1:3])
    assert np.shares_memory(tensor.rows(1, 3).raw, tensor.raw)
    assert tensor.rows(1, 3).shape == (2, 5) and tensor.rows(1, 3).nbytes == 40
    for start, stop in [(-1, 2), (2, 4), (2, 1)]:
        with pytest.raises(ValueError, match="outside 'f32'"):
            tensor.rows(start, stop)


def test_quantised_tensor_has_no_plain_values():
    with pytest.raises(UnsupportedError, match=r"'output\.weight' is Q8_0, expected a plain type"):
        open_gguf(GOLDEN).tensors["output.weight"].numpy()


def test_get_checks_presence_and_kind():
    file = open_gguf(GOLDEN)
    assert file.get("llama.block_count", int) == 2
    assert file.get("llama.block_count", float) == 2.0
    assert file.get("llama.none", int, None) is None
    assert file.get("tokenizer.ggml.scores", np.ndarray).shape == (512,)
    with pytest.raises(MismatchError, match=r"model\.gguf.*'llama\.none' is missing.*int"):
        file.get("llama.none", int)
    with pytest.raises(FormatError, match=r"model\.gguf.*'llama\.block_count' is int, expected st"):
        file.get("llama.block_count", str)
    with pytest.raises(
        FormatError, match=r"'tokenizer\.ggml\.tokens' is a string array, expected a"
    ):
        file.get("tokenizer.ggml.tokens", np.ndarray, None)


def test_require_tensor_names_what_was_got_and_expected():
    file = open_gguf(GOLDEN)
    assert file.require_tensor("output_norm.weight", (256,)).shape == (256,)
    with pytest.raises(MismatchError, match=r"'nothing' is missing; expected it with shape \(2, 3"):
        file.require_tensor("nothing", (2, 3))
    with pytest.raises(MismatchError, match=r"has shape \(512, 256\), expected \(256, 512\)"):
        file.require_tensor("token_embd.weight", (256, 512))


def test_alignment_of_the_file_is_honoured(tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "a.gguf", "llama")
    writer.add_custom_alignment(256)
    values = [np.full((1, 3), i, np.float32) for i in range(3)]
    for i, value in enumerate(values):
        writer.add_tensor(f"t{i}", value)
    write_all(writer)
    file = open_gguf(tmp_path / "a.gguf")
    for i, value in enumerate(values):
        np.testing.assert_array_equal(file.tensors[f"t{i}"].numpy(), value)


def test_closed_file_keeps_held_arrays():
    with open_gguf(GOLDEN) as file:
        norm = file.tensors["output_norm.weight"].numpy()
        expected = norm.copy()
    assert not file.tensors and not file.metadata
    np.testing.assert_array_equal(norm, expected)


def test_closing_unmaps_the_file(tmp_path):
    path = tmp_path / "mapped.gguf"
    path.write_bytes(GOLDEN.read_bytes())
    maps = Path("/proc/self/maps")
    if not maps.exists():
        pytest.skip("needs /proc")
    file = open_gguf(path)
    assert str(path) in maps.read_text()
    file.close()
    assert str(path) not in maps.read_text()


def test_a_large_vocabulary_opens_at_once(tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "v.gguf", "llama")
    writer.add_token_list([f"token {i}" for i in range(262_144)])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        file = open_gguf(tmp_path / "v.gguf")
        seconds.append(time.perf_counter() - start)
    assert min(seconds) < 0.05
    tokens = file.get("tokenizer.ggml.tokens", StringArray)
    assert tokens[-1] == "token 262143" and len(tokens) == 262_144


def test_opening_reads_no_tensor_bytes(tmp_path):
    """A sparse file of 8 GB: only its header can be read in any time."""
    from gguf_bytes import gguf_file, tensor

    header = gguf_file(tensors=[tensor("big", (1 << 20, 1 << 11))])
    with open(tmp_path / "sparse.gguf", "wb") as out:
        out.write(header)
        out.truncate(len(header) + (1 << 33))
    start = time.perf_counter()
    file = open_gguf(tmp_path / "sparse.gguf")
    assert time.perf_counter() - start < 0.5
    assert file.tensors["big"].nbytes == 1 << 33
    assert file.tensors["big"].rows(2047, 2048).numpy().sum() == 0
