"""Files that cannot be run: each is a typed error that names what is wrong."""

import re
import time
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import specrt
from specrt import SamplingParams
from specrt.errors import FormatError, MismatchError, SpecrtError, UnsupportedError
from specrt.models import ARCHITECTURES
from tests.models_on_disk import golden_path
from tests.rewriting import rewritten
from tests.tiny_model import WIDTH, required_keys, required_tensors, write_tiny_model


def load(path: Path, **options):
    return specrt.load(path, verbose=False, **options)


@pytest.mark.parametrize("key", [*required_keys(), "tokenizer.ggml.model"])
@pytest.mark.parametrize("name", ["llama", "qwen3", "gemma3"])
def test_each_required_key(name, key, tmp_path):
    key = key if key.startswith("tokenizer") else f"{name}.{key}"
    path = rewritten(golden_path(name), tmp_path / "m.gguf", drop=(key,))
    with pytest.raises(MismatchError, match=re.escape(key)):
        load(path)


@pytest.mark.parametrize("key", ["tokens", "merges", "pre"])
def test_each_required_key_of_a_byte_level_tokenizer(tiny, key, tmp_path):
    """What only text needs may be told when there is text, but nothing runs without it."""
    path = rewritten(tiny, tmp_path / "m.gguf", drop=(f"tokenizer.ggml.{key}",))
    with pytest.raises(SpecrtError, match=f"ggml.{key}"):
        load(path).generate("the rain", SamplingParams(max_tokens=1))


@pytest.mark.parametrize("name", required_tensors())
def test_each_required_tensor(name, tmp_path):
    path = write_tiny_model(tmp_path / "m.gguf", drop=(name,))
    with pytest.raises(MismatchError, match=name):
        load(path)


def test_a_tied_head(tmp_path):
    path = write_tiny_model(tmp_path / "m.gguf", drop=("output.weight",))
    assert load(path).generate("the", SamplingParams(max_tokens=3)).token_ids


def test_an_unknown_architecture_lists_what_runs(tmp_path):
    path = write_tiny_model(tmp_path / "m.gguf", architecture="falcon")
    with pytest.raises(UnsupportedError, match="gemma3, llama, qwen3"):
        load(path)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return write_tiny_model(tmp_path_factory.mktemp("tiny") / "tiny.gguf")


UINT, FLOAT, STRING = (
    gguf.GGUFValueType.UINT32,
    gguf.GGUFValueType.FLOAT32,
    gguf.GGUFValueType.STRING,
)


@pytest.mark.parametrize(
    ("key", "value", "kind", "error"),
    [
        ("llama.block_count", 0, UINT, FormatError),
        ("llama.block_count", 2**31, UINT, FormatError),
        ("llama.embedding_length", 2**31 - 1, UINT, MismatchError),
        ("llama.attention.head_count", 3, UINT, FormatError),
        ("llama.attention.head_count_kv", 0, UINT, FormatError),
        ("llama.attention.key_length", 33, UINT, SpecrtError),
        ("llama.attention.key_length", 2**30, UINT, FormatError),
        ("llama.context_length", 2**31, UINT, FormatError),
        ("llama.expert_count", 8, UINT, UnsupportedError),
        ("llama.rope.dimension_count", 16, UINT, UnsupportedError),
        ("llama.rope.freq_base", float("nan"), FLOAT, MismatchError),
        ("llama.rope.scaling.type", "yarn", STRING, UnsupportedError),
        ("llama.attention.layer_norm_rms_epsilon", float("inf"), FLOAT, FormatError),
        ("tokenizer.ggml.pre", "unheard-of", STRING, UnsupportedError),
        ("tokenizer.ggml.model", "unheard-of", STRING, UnsupportedError),
        ("tokenizer.chat_template", "{% if %}", STRING, FormatError),
    ],
)
def test_impossible_values(tiny, key, value, kind, error, tmp_path):
    path = rewritten(tiny, tmp_path / "m.gguf", keys={key: (value, kind)})
    with pytest.raises(error):
        load(path)


def test_a_wrong_shape_names_both_shapes(tiny, tmp_path):
    wrong = {"blk.1.attn_q.weight": np.zeros((7, WIDTH), np.float16)}
    path = rewritten(tiny, tmp_path / "m.gguf", tensors=wrong)
    with pytest.raises(MismatchError, match=r"\(7, 64\).*\(128, 64\)"):
        load(path)


def test_a_tensor_that_would_not_be_applied_is_refused(tiny, tmp_path):
    extra = {"blk.0.attn_sinks.weight": np.zeros(4, np.float32)}
    path = rewritten(tiny, tmp_path / "m.gguf", extra=extra)
    with pytest.raises(UnsupportedError, match="attn_sinks"):
        load(path)


def test_biases_and_a_fused_qkv(tiny, tmp_path):
    """The biased model equals the plain one when biases are zero, and not when they are not."""
    prompt, params = "the rain", SamplingParams(max_tokens=8, ignore_eos=True)
    plain = load(tiny).generate(prompt, params).token_ids
    for value, equal in ((0.0, True), (1.5, False)):
        bias = {"blk.0.attn_q.bias": np.full(128, value, np.float32)}
        path = rewritten(tiny, tmp_path / f"{value}.gguf", extra=bias)
        assert (load(path).generate(prompt, params).token_ids == plain) == equal


@pytest.mark.parametrize("kv_type", ["q8_0"])
def test_kv_blocks_need_whole_heads(kv_type):
    llm = specrt.load(golden_path("llama"), kv_type=kv_type, verbose=False)
    assert llm.generate([1, 2, 3], SamplingParams(max_tokens=3)).token_ids


@pytest.mark.parametrize("architecture", ["dflash", "eagle3", "gemma4-assistant"])
def test_a_drafter_is_no_target(architecture, tmp_path):
    path = write_tiny_model(tmp_path / "m.gguf", architecture=architecture)
    with pytest.raises(MismatchError, match="pass it as the draft model"):
        load(path)


def test_a_target_is_no_drafter(tiny):
    with pytest.raises(MismatchError, match="expected a drafter"):
        load(tiny, draft_model=tiny)


def drafter(path: Path, width: int, layers: list[int], num_tokens: int | None = None) -> Path:
    writer = gguf.GGUFWriter(path, "dflash")
    writer.add_uint32("dflash.embedding_length", width)
    writer.add_array("dflash.target_layers", layers)
    if num_tokens is not None:
        writer.add_token_list([f"t{i}" for i in range(num_tokens)])
    writer.add_tensor("fc.weight", np.zeros((4, 4), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize(
    ("width", "layers", "num_tokens", "shown"),
    [
        (96, [0, 1], None, ("dflash.embedding_length = 96", "llama.embedding_length = 64")),
        (WIDTH, [0, 3], None, ("dflash.target_layers = [0, 3]", "llama.block_count = 2")),
        (WIDTH, [-1, 1], None, ("dflash.target_layers = [-1, 1]", "llama.block_count = 2")),
        (
            WIDTH,
            [0, 1],
            264,
            ("tokenizer.ggml.tokens holds 264", "tokenizer.ggml.tokens holds 265"),
        ),
    ],
)
def test_a_drafter_for_another_target_names_key_values_and_files(
    tiny, width, layers, num_tokens, shown, tmp_path
):
    path = drafter(tmp_path / "d.gguf", width, layers, num_tokens)
    with pytest.raises(MismatchError) as caught:
        load(tiny, draft_model=path)
    for text in (*shown, str(path), str(tiny)):
        assert text in str(caught.value)


def test_a_drafter_that_fits_says_that_it_does_not_run_yet(tiny, tmp_path):
    with pytest.raises(UnsupportedError, match="do not run here yet"):
        load(tiny, draft_model=drafter(tmp_path / "d.gguf", WIDTH, [0, 2], 265))


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_mutated_files_load_or_are_refused(tiny, tmp_path, data):
    """Bytes of the header and the metadata are changed: nothing but a typed error may come."""
    raw = bytearray(tiny.read_bytes())
    header = 6_000  # the tensors' bytes follow
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, header))
        raw[place] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del raw[data.draw(st.integers(0, len(raw))) :]
    path = tmp_path / "mutated.gguf"
    path.write_bytes(raw)
    start = time.monotonic()
    try:
        llm = load(path, context=32)
        llm.generate([1, 2, 3], SamplingParams(max_tokens=2), spec="ngram")
    except SpecrtError:
        pass
    assert time.monotonic() - start < 5


@pytest.mark.parametrize("name", ["llama", "qwen3", "gemma3"])
def test_the_preferred_length_of_a_draft_is_the_family_s(name, monkeypatch):
    def num_draft(**options):
        llm = load(golden_path(name))
        return llm.speculation.resolve(specrt.SpecOptions(**options)).num_draft

    assert num_draft() == 8
    monkeypatch.setattr(ARCHITECTURES[name], "preferred_num_draft", 3)
    assert num_draft() == 3
    assert num_draft(num_draft=5) == 5
