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
from tests.rewriting import rewritten, write_all
from tests.tiny_model import LAYERS, WIDTH, required_keys, required_tensors, write_tiny_model


def load(path: Path, **options):
    return specrt.load(path, verbose=False, **options)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        (name, key)
        for name in ("llama", "qwen3", "gemma3", "qwen35", "muse-glimmer")
        for key in [*required_keys(name), "tokenizer.ggml.model"]
    ],
)
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


@pytest.mark.parametrize(
    ("architecture", "name"),
    [(one, name) for one in ("llama", "qwen35") for name in required_tensors(one)],
)
def test_each_required_tensor(architecture, name, tmp_path):
    path = write_tiny_model(tmp_path / "m.gguf", architecture=architecture, drop=(name,))
    with pytest.raises(MismatchError, match=name):
        load(path)


def test_a_tied_head(tmp_path):
    path = write_tiny_model(tmp_path / "m.gguf", drop=("output.weight",))
    assert load(path).generate("the", SamplingParams(max_tokens=3)).token_ids


def test_an_unknown_architecture_lists_what_runs(tmp_path):
    path = write_tiny_model(tmp_path / "m.gguf", architecture="falcon")
    with pytest.raises(UnsupportedError, match="gemma3, llama, muse-glimmer, qwen3, qwen35"):
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
        ("llama.attention.head_count", 2**20, UINT, FormatError),
        ("llama.attention.head_count_kv", 0, UINT, FormatError),
        ("llama.attention.head_count_kv", 2**12 + 1, UINT, FormatError),
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


@pytest.mark.parametrize("values", [[4, 2**20], [4, 0], [4, 4, 4], [-4, 4]])
def test_impossible_heads_per_layer(tiny, values, tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    for name, value in (("block_count", 2), ("embedding_length", WIDTH)):
        writer.add_uint32(f"llama.{name}", value)
    writer.add_array("llama.attention.head_count", values)
    for i in range(2):
        writer.add_tensor(f"t{i}", np.zeros(1, np.float32))
    write_all(writer)
    with pytest.raises(FormatError, match="integers from 1 to 4096"):
        load(tmp_path / "m.gguf")


@pytest.mark.parametrize(
    ("key", "value", "kind"),
    [
        ("attention.sliding_window", 2**24 + 1, UINT),
        ("attention.sliding_window", 2**31 - 62, UINT),
        ("attention.sliding_window", 2**32 - 1, UINT),
        ("attention.sliding_window", -1, gguf.GGUFValueType.INT32),
        ("attention.sliding_window", 2**63, gguf.GGUFValueType.UINT64),
        ("attention.sliding_window_pattern", 0, UINT),
        ("final_logit_softcapping", float("inf"), FLOAT),
        ("final_logit_softcapping", float("nan"), FLOAT),
        ("final_logit_softcapping", -30.0, FLOAT),
        ("final_logit_softcapping", 1e300, gguf.GGUFValueType.FLOAT64),
    ],
)
def test_impossible_values_of_gemma3(key, value, kind, tmp_path):
    keys = {f"gemma3.{key}": (value, kind)}
    path = rewritten(golden_path("gemma3"), tmp_path / "m.gguf", keys=keys)
    with pytest.raises(FormatError, match=key):
        load(path)


@pytest.mark.parametrize(
    ("key", "value", "kind"),
    [
        ("ssm.conv_kernel", 0, UINT),
        ("ssm.conv_kernel", 65, UINT),
        ("ssm.state_size", 16, UINT),
        ("ssm.inner_size", 2**31 - 1, UINT),
        ("ssm.group_count", 3, UINT),
        ("ssm.group_count", 0, UINT),
        ("ssm.time_step_rank", 0, UINT),
        ("full_attention_interval", 0, UINT),
        ("rope.dimension_count", 34, UINT),
        ("rope.dimension_count", 12, UINT),
        ("nextn_predict_layers", 7, UINT),
        ("nextn_predict_layers", -1, gguf.GGUFValueType.INT32),
    ],
)
def test_impossible_values_of_qwen35(key, value, kind, tmp_path):
    keys = {f"qwen35.{key}": (value, kind)}
    path = rewritten(golden_path("qwen35"), tmp_path / "m.gguf", keys=keys)
    with pytest.raises(FormatError, match=key.rpartition(".")[2]):
        load(path)


def test_rotary_tables_that_are_not_finite_are_refused(tmp_path):
    keys = {"gemma3.rope.scaling.factor": (5e-324, gguf.GGUFValueType.FLOAT64)}
    path = rewritten(golden_path("gemma3"), tmp_path / "m.gguf", keys=keys)
    with pytest.raises(MismatchError, match="expected finite ones"):
        load(path)


@pytest.mark.parametrize("value", [0.0, -1.0, float("inf"), float("nan")])
def test_impossible_rope_divisors(tiny, value, tmp_path):
    divisors = np.ones(16, np.float32)
    divisors[5] = value
    extra = {"rope_freqs.weight": divisors}
    path = rewritten(tiny, tmp_path / "m.gguf", extra=extra)
    with pytest.raises(MismatchError, match=r"rope_freqs\.weight holds"):
        load(path)


EXTREMES = {
    gguf.GGUFValueType.UINT32: [0, 1, 2**31 - 62, 2**31 - 1, 2**32 - 1],
    gguf.GGUFValueType.FLOAT32: [0.0, -1.0, 1e-45, float("inf"), float("nan")],
    gguf.GGUFValueType.STRING: ["", "none"],
}
EXTRA_KEYS = {"final_logit_softcapping": FLOAT, "attention.sliding_window_pattern": UINT}


def scalar_keys(name: str) -> dict[str, gguf.GGUFValueType]:
    """The architecture's own keys in the golden file, and what else the loader reads."""
    reader = gguf.GGUFReader(golden_path(name))
    found = {key: field.types[0] for key, field in reader.fields.items()}
    own = {k: kind for k, kind in found.items() if k.startswith(f"{name}.") and kind in EXTREMES}
    return own | {f"{name}.{key}": kind for key, kind in EXTRA_KEYS.items()}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", ["llama", "gemma3", "qwen35moe", "muse-glimmer"])
def test_every_key_at_its_extremes_loads_and_runs_or_is_refused(name, tmp_path):
    for key, kind in scalar_keys(name).items():
        for value in EXTREMES[kind]:
            path = rewritten(golden_path(name), tmp_path / "m.gguf", keys={key: (value, kind)})
            try:
                load(path, context=32).generate([1, 2, 3], SamplingParams(max_tokens=2))
            except SpecrtError as error:
                assert str(error), (key, value)


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


def test_names_of_tensors_are_shown_escaped(tiny, tmp_path):
    extra = {"evil\x1b[2J\nname": np.zeros(4, np.float32)}
    path = rewritten(tiny, tmp_path / "m.gguf", extra=extra)
    with pytest.raises(UnsupportedError) as caught:
        load(path)
    assert r"'evil\x1b[2J\nname'" in str(caught.value) and str(caught.value).isprintable()


PROMPT = list(range(40, 60))


@pytest.mark.parametrize(("name", "size"), [("q", 128), ("k", 64), ("v", 64), ("output", WIDTH)])
def test_biases(tiny, name, size, tmp_path):
    """The biased model equals the plain one when biases are zero, and not when they are not."""
    plain = load(tiny).logits(PROMPT)
    values = np.random.default_rng(2).standard_normal(size, dtype=np.float32)
    for scale, equal in ((0, True), (1, False)):
        bias = {f"blk.0.attn_{name}.bias": scale * values}
        path = rewritten(tiny, tmp_path / f"{scale}.gguf", extra=bias)
        assert np.array_equal(load(path).logits(PROMPT), plain) == equal


def test_a_fused_qkv_is_the_three_below_each_other(tiny, tmp_path):
    reader = gguf.GGUFReader(tiny)
    stored = {tensor.name: tensor.data for tensor in reader.tensors}
    parts = {i: [f"blk.{i}.attn_{name}.weight" for name in "qkv"] for i in range(LAYERS)}
    fused = {
        f"blk.{i}.attn_qkv.weight": np.concatenate([stored[name] for name in names])
        for i, names in parts.items()
    }
    dropped = tuple(name for names in parts.values() for name in names)
    path = rewritten(tiny, tmp_path / "m.gguf", extra=fused, drop=dropped)
    plain, got = load(tiny), load(path)
    assert np.array_equal(got.logits(PROMPT), plain.logits(PROMPT))
    params = SamplingParams(max_tokens=12, ignore_eos=True)
    assert got.generate(PROMPT, params).token_ids == plain.generate(PROMPT, params).token_ids


def test_q8_0_kv_needs_whole_blocks_per_head(tmp_path):
    path = write_tiny_model(tmp_path / "m.gguf", head_dim=48)
    with pytest.raises(UnsupportedError, match="q8_0 stores blocks of 32 dims, and a head has 48"):
        load(path, kv_type="q8_0")
    for kv_type in ("f16", "f32"):
        llm = load(path, kv_type=kv_type)
        assert llm.generate([1, 2, 3], SamplingParams(max_tokens=3)).token_ids
    llm = load(golden_path("llama"), kv_type="q8_0")
    assert llm.generate([1, 2, 3], SamplingParams(max_tokens=3)).token_ids


@pytest.mark.parametrize("architecture", ["dflash", "eagle3", "gemma4-assistant"])
def test_a_drafter_is_no_target(architecture, tmp_path):
    path = write_tiny_model(tmp_path / "m.gguf", architecture=architecture)
    with pytest.raises(MismatchError, match="pass it as the draft model"):
        load(path)


def test_a_target_is_no_drafter(tiny):
    with pytest.raises(MismatchError, match="expected a drafter"):
        load(tiny, draft_model=tiny)


def drafter(
    path: Path,
    width: int,
    layers: list[int],
    num_tokens: int | None = None,
    key: str = "dflash.embedding_length",
) -> Path:
    architecture = key.partition(".")[0]
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_uint32(key, width)
    writer.add_array(f"{architecture}.target_layers", layers)
    if num_tokens is not None:
        writer.add_token_list([f"t{i}" for i in range(num_tokens)])
    writer.add_tensor("fc.weight", np.zeros((4, 4), np.float32))
    write_all(writer)
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
        path = tmp_path / "d.gguf"
        load(tiny, draft_model=drafter(path, WIDTH, [0, 2], 265, "eagle3.target_hidden_size"))


@pytest.fixture(scope="module", params=["tiny", "gemma3", "qwen35", "qwen35moe", "muse-glimmer"])
def mutable(request, tiny):
    """A file, and where in it its metadata lie."""
    raw = (tiny if request.param == "tiny" else golden_path(request.param)).read_bytes()
    return raw, 6_000 if request.param == "tiny" else raw.index(b"tokenizer.ggml.tokens")


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_mutated_files_load_or_are_refused(mutable, tmp_path, data):
    """Bytes of the header and the metadata are changed: nothing but a typed error may come."""
    raw, header = bytearray(mutable[0]), mutable[1]
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


@pytest.mark.parametrize("name", ["llama", "qwen3", "gemma3", "muse-glimmer"])
def test_the_preferred_length_of_a_draft_is_the_family_s(name, monkeypatch):
    def num_draft(**options):
        llm = load(golden_path(name))
        return llm.speculation.resolve(specrt.SpecOptions(**options)).num_draft

    assert num_draft() == 8
    monkeypatch.setattr(ARCHITECTURES[name], "preferred_num_draft", 3)
    assert num_draft() == 3
    assert num_draft(num_draft=5) == 5


def test_qwen35_prefers_drafts_of_three():
    assert load(golden_path("qwen35")).speculation.resolve(specrt.SpecOptions()).num_draft == 3
