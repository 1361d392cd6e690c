"""Which ``dflash`` files are bound to a target, and what the others are told."""

import struct
from functools import cache

import gguf
import numpy as np
import pytest

import specrt
from specrt.drafters import check_drafter
from specrt.drafters.dflash import DFlashWeights
from specrt.drafters.dflash_keys import read_generation
from specrt.errors import FormatError, MismatchError, SpecrtError, UnsupportedError
from specrt.gguf.reader import open_gguf
from specrt.models import load_trunk
from specrt.models.loader import Loader
from specrt.reference import ReferenceOps
from tests.models_on_disk import DRAFTER_GOLDENS, golden_path
from tests.rewriting import rewritten

U32, I32, F32, BOOL, STRING, ARRAY = (
    getattr(gguf.GGUFValueType, name)
    for name in ("UINT32", "INT32", "FLOAT32", "BOOL", "STRING", "ARRAY")
)
CONTEXT = 64


@cache
def trunk_of(path):
    return load_trunk(open_gguf(path), ReferenceOps(), CONTEXT)


def bind(path, target="qwen35"):
    """What loading does, without buffers and programs."""
    trunk = trunk_of(target if not isinstance(target, str) else golden_path(target))
    with open_gguf(path) as file:
        check_drafter(trunk.gguf, file)
        return DFlashWeights.load(Loader(file, trunk.ops), trunk, CONTEXT, 1)


def changed(name, tmp_path, **changes):
    return rewritten(golden_path(name), tmp_path / "drafter.gguf", **changes)


def told(name, tmp_path, kinds=SpecrtError, **changes):
    """The error, which names the drafter's file."""
    path = changed(name, tmp_path, **changes)
    with pytest.raises(kinds) as caught:
        bind(path, DRAFTER_GOLDENS[name])
    assert str(path) in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("name", DRAFTER_GOLDENS)
def test_as_they_are(name):
    kind = {"dflash-": "DFlash", "dflash2": "DFlash2", "dspark-": "DSpark"}[name[:7]]
    with open_gguf(golden_path(name)) as file:
        assert read_generation(file) == ("DSpark" if name == "dflash-options-qwen3" else kind)
    assert bind(golden_path(name), DRAFTER_GOLDENS[name]).keys.generation


def tensors(name):
    with open_gguf(golden_path(name)) as file:
        return sorted(file.tensors)


OPTIONAL = {
    "dflash-options-qwen3": (
        "rope_freqs", "output.weight", "token_embd", "layer_output_scale", "post_"
    ),
    "dspark-qwen3-bonus": ("d2t", "attn_sinks"),
}  # fmt: skip
"""Without these a file is another complete drafter."""


@pytest.mark.parametrize("name", [name for name in DRAFTER_GOLDENS if "quant" not in name])
def test_every_tensor_that_is_missing_is_told(name, tmp_path):
    optional = OPTIONAL.get(name, ())
    for tensor in tensors(name):
        if any(part in tensor for part in optional):
            continue
        if "attn_v" in tensor:  # keys and values may be one projection
            bind(changed(name, tmp_path, drop=(tensor,)), DRAFTER_GOLDENS[name])
            continue
        assert tensor in told(name, tmp_path, drop=(tensor,))


@pytest.mark.parametrize("name", ["dflash2-qwen35", "dspark-qwen3-bonus", "dflash-options-qwen3"])
def test_every_tensor_of_another_shape_is_told(name, tmp_path):
    for tensor in tensors(name):
        with open_gguf(golden_path(name)) as file:
            shape = file.tensors[tensor].shape
        dtype = np.int64 if tensor == "d2t" else np.float32
        for other in ((shape[0] + 1, *shape[1:]), (*shape[:-1], shape[-1] + 1), (*shape, 1)):
            told(name, tmp_path, tensors={tensor: np.ones(other, dtype)})


@pytest.mark.parametrize("name", ["dflash-qwen35", "dflash2-qwen35", "dspark-qwen3"])
@pytest.mark.parametrize(
    "extra",
    ["fc.bias", "blk.0.attn_q.scale", "blk.0.attn_gate.weight", "blk.7.attn_q.weight", "head"],
)
def test_a_tensor_that_nobody_applies_is_told(name, extra, tmp_path):
    text = told(name, tmp_path, UnsupportedError, extra={extra: np.ones(96, np.float32)})
    assert repr(extra) in text


REQUIRED = (
    "block_count", "embedding_length", "context_length", "feed_forward_length",
    "attention.head_count", "attention.layer_norm_rms_epsilon", "block_size", "target_layers",
)  # fmt: skip


@pytest.mark.parametrize("key", [f"dflash.{key}" for key in REQUIRED])
@pytest.mark.parametrize("name", ["dflash-qwen35", "dflash2-muse", "dspark-qwen3-bonus"])
def test_every_key_that_is_missing_is_told(name, key, tmp_path):
    assert key in told(name, tmp_path, MismatchError, drop=(key,))


def test_the_mask_is_required(tmp_path):
    key = "tokenizer.ggml.mask_token_id"
    assert key in told("dflash-qwen35", tmp_path, MismatchError, drop=(key,))


VALUES = [
    ("target_layers", [1, 3, 7], ARRAY, "block_count = 7, of which 1 are draft heads"),
    ("target_layers", [1, 3, -1], ARRAY, "target_layers = [1, 3, -1]"),
    ("target_layers", [1, 3, 3], ARRAY, "different layers"),
    ("target_layers", [1.0, 3.0, 5.0], ARRAY, "float"),
    ("target_layers", [True, False, True], ARRAY, "bool"),
    ("target_layers", [1, 3], ARRAY, "fc.weight"),
    ("target_layers", 3, U32, "target_layers"),
    ("block_size", 0, U32, "block_size = 0"),
    ("block_size", 1, U32, "block_size = 1, expected 2 to 65"),
    ("block_size", 66, U32, "block_size = 66, expected 2 to 65"),
    ("block_size", 2**31, U32, "block_size"),
    ("block_size", 8.0, F32, "block_size"),
    ("hidden_activation", "relu", STRING, "hidden_activation = 'relu'"),
    ("embedding_length", 100, U32, "embedding_length = 100, but"),
    ("attention.causal", 1, U32, "attention.causal"),
    ("attention.sliding_window", 0, U32, "sliding_window = 0"),
    ("attention.sliding_window_pattern", [True, True], ARRAY, "holds 2 bool"),
    ("attention.sliding_window_pattern", [1, 1, 1], ARRAY, "holds 3 int32"),
    ("attention.sliding_window_pattern", 2, U32, "sliding_window_pattern"),
    ("attention.scale", float("nan"), F32, "attention.scale = nan"),
    ("attention.value_scale", float("inf"), F32, "attention.value_scale = inf"),
    ("embedding_scale", float("nan"), F32, "embedding_scale = nan"),
    ("conv_kernel_size", 0, U32, "conv_kernel_size = 0"),
    ("conv_kernel_size", 65, U32, "conv_kernel_size = 65"),
    ("conv_kernel_size", 4, U32, "attn_conv_base"),
    ("conv_group_size", 0, U32, "conv_group_size = 0"),
    ("conv_group_size", 7, U32, "conv_group_size = 7"),
    ("conv_group_size", 16, U32, "attn_conv_proj"),
    ("selector_rank", 0, U32, "selector_rank = 0"),
    ("selector_rank", 17, U32, "selector_hidden"),
    ("selector_top_k", 0, U32, "selector_top_k = 0"),
    ("selector_top_k", 65, U32, "selector_top_k = 65, expected at least 1, and 1 to 64"),
    ("logit_scale", 0.5, F32, "dflash.logit_scale = 0.5"),
    ("logit_scale", float("nan"), F32, "dflash.logit_scale = nan"),
    ("final_logit_softcapping", 30.0, F32, "final_logit_softcapping = 30.0"),
    ("rope.freq_base", float("nan"), F32, "freq_base = nan"),
    ("rope.dimension_count", 31, U32, "dimension_sections = [16, 0, 0, 0]"),
    ("rope.dimension_count", 34, U32, "rope.dimension_count = 34"),
    ("rope.dimension_sections", [9, 9, 0, 0], ARRAY, "dimension_sections = [9, 9, 0, 0]"),
    ("rope.scaling.type", "yarn", STRING, "rope.scaling.type = 'yarn'"),
    ("attention.layer_norm_rms_epsilon", float("nan"), F32, "epsilon = nan"),
]


@pytest.mark.parametrize(("key", "value", "kind", "text"), VALUES, ids=str)
def test_a_value_that_does_not_fit_is_told(key, value, kind, text, tmp_path):
    key = f"dflash.{key}"
    assert text in told("dflash2-qwen35", tmp_path, keys={key: (value, kind)})


@pytest.mark.parametrize("mask", [512, -1, 2**31])
def test_the_mask_is_an_id_of_the_target(mask, tmp_path):
    kind = I32 if mask < 0 else U32
    keys = {"tokenizer.ggml.mask_token_id": (mask, kind)}
    got = told("dflash-qwen35", tmp_path, MismatchError, keys=keys)
    assert f"mask_token_id = {mask}" in got and str(golden_path("qwen35")) in got


@pytest.mark.parametrize("key", ["sliding_window", "sliding_window_pattern"])
def test_a_window_and_its_layers_belong_together(key, tmp_path):
    key = f"dflash.attention.{key}"
    assert repr(key) in told("dflash2-muse", tmp_path, MismatchError, drop=(key,))


@pytest.mark.parametrize("key", ["logit_scale", "final_logit_softcapping"])
def test_the_logits_of_a_second_generation_are_scaled_as_the_targets(key, tmp_path):
    got = told("dflash2-muse", tmp_path, MismatchError, drop=(f"dflash.{key}",))
    assert key in got and str(golden_path("muse-glimmer")) in got


@pytest.mark.parametrize(
    "key", ["selector_rank", "selector_top_k", "conv_kernel_size", "conv_group_size"]
)
def test_keys_and_tensors_of_the_second_generation_belong_together(key, tmp_path):
    key = f"dflash.{key}"
    assert key in told("dflash2-qwen35", tmp_path, MismatchError, drop=(key,))
    assert key in told("dflash-qwen35", tmp_path, MismatchError, keys={key: (4, U32)})


@pytest.mark.parametrize("part", ["attn_conv", "ffn_conv", "conv_base", "conv_proj", "blk.1."])
def test_convolutions_stand_everywhere_or_nowhere(part, tmp_path):
    drop = [name for name in tensors("dflash2-qwen35") if part in name and "_conv_" in name]
    assert "conv" in told("dflash2-qwen35", tmp_path, drop=tuple(drop))
    every = [name for name in tensors("dflash2-qwen35") if "_conv_" in name]
    keys = ("dflash.conv_kernel_size", "dflash.conv_group_size")
    bind(changed("dflash2-qwen35", tmp_path, drop=(*every, *keys)))


def test_a_drafter_is_of_one_generation(tmp_path):
    extra = {f"markov_w{number}.weight": np.ones((512, 16), np.float32) for number in (1, 2)}
    got = told("dflash2-qwen35", tmp_path, FormatError, extra=extra)
    assert "selector_hidden.weight and markov_w1.weight" in got
    for key in ("sample_from_anchor", "has_confidence_head"):
        keys = {f"dflash.{key}": (True, BOOL)}
        assert key in told("dflash-qwen35", tmp_path, MismatchError, keys=keys)


def test_a_confidence_head_is_there_where_the_file_says_so(tmp_path):
    key, head = "dflash.has_confidence_head", ("conf_proj.weight", "conf_proj.bias")
    assert key in told("dspark-qwen3", tmp_path, MismatchError, drop=head)
    assert key in told("dspark-qwen3", tmp_path, MismatchError, drop=(*head, key))
    assert key in told("dspark-qwen3", tmp_path, MismatchError, keys={key: (False, BOOL)})
    assert key in told("dflash-options-qwen3", tmp_path, MismatchError, drop=(key,))
    keys = {key: (False, BOOL)}
    bind(changed("dspark-qwen3", tmp_path, keys=keys, drop=head), "qwen3")


IDS = np.arange(300, dtype=np.int64)


@pytest.mark.parametrize(
    "ids",
    [
        IDS + 213, IDS - 1, np.zeros(300, np.int64) + 213, np.where(IDS == 7, 213, IDS + 212),
        IDS.astype(np.float32), IDS.astype(np.int16), IDS[:0], IDS.reshape(2, 150), IDS[:-1],
    ],
    ids=lambda ids: f"{ids.dtype}{ids.shape}{ids.reshape(-1)[:1]}",
)  # fmt: skip
def test_ids_of_a_reduced_head_that_are_none(ids, tmp_path):
    got = told("dspark-qwen3-bonus", tmp_path, tensors={"d2t": ids})
    assert "d2t" in got or "output.weight" in got


def test_ids_of_a_reduced_head_are_absolute_or_plainly_offsets(tmp_path):
    name = "dspark-qwen3-bonus"
    plain = bind(golden_path(name), "qwen3")
    assert len(plain.names) == 300 and plain.names.dtype == np.int32
    ids = np.sort(plain.names).astype(np.int64)
    for stored in (ids, ids.astype(np.int32), ids - IDS):
        path = changed(name, tmp_path, tensors={"d2t": stored})
        assert bind(path, "qwen3").names.tolist() == ids.tolist()
    identity = changed(name, tmp_path, tensors={"d2t": IDS * 0})
    assert bind(identity, "qwen3").names.tolist() == IDS.tolist()


def test_ids_without_a_head_name_nothing(tmp_path):
    extra = {"d2t": IDS}
    assert "d2t without output.weight" in told("dflash-qwen35", tmp_path, extra=extra)
    extra["token_embd.weight"] = np.ones((512, 96), np.float32)
    assert "d2t without output.weight" in told("dflash-qwen35", tmp_path, extra=extra)


@pytest.mark.parametrize("scale", [np.nan, np.inf])
def test_a_layer_is_scaled_by_a_number(scale, tmp_path):
    name = "blk.1.layer_output_scale.weight"
    values = {name: np.array([scale], np.float32)}
    assert name in told("dflash-options-qwen3", tmp_path, FormatError, tensors=values)


def test_sections_and_divisors_exclude_each_other(tmp_path):
    extra = {"rope_freqs.weight": np.ones(16, np.float32)}
    got = told("dflash-qwen35", tmp_path, FormatError, extra=extra)
    assert "rope_freqs.weight" in got and "dimension_sections" in got
    values = {"rope_freqs.weight": np.zeros(16, np.float32)}
    told("dflash-options-qwen3", tmp_path, MismatchError, tensors=values)


@pytest.mark.parametrize(
    ("name", "target"),
    [("dflash-qwen35", "qwen35-quant"), ("dspark-accept", "qwen35"), ("dflash2-muse", "qwen35")],
)
def test_another_target(name, target):
    with pytest.raises(MismatchError) as caught:
        bind(golden_path(name), target)
    for path in (golden_path(name), golden_path(target)):
        assert str(path) in str(caught.value)


@pytest.mark.parametrize("size", [511, 512])
def test_a_vocabulary_is_told_by_its_size_where_there_are_no_tokens(size, tmp_path):
    tokens = ("tokenizer.ggml.tokens", "tokenizer.ggml.scores")
    keys = {"dflash.vocab_size": (size, U32)}
    if size == 512:
        bind(changed("dflash-qwen35", tmp_path, keys=keys, drop=tokens))
    else:
        got = told("dflash-qwen35", tmp_path, MismatchError, keys=keys, drop=tokens)
        assert "vocab_size = 511" in got and str(golden_path("qwen35")) in got


def test_files_that_say_which_belong_together(tmp_path):
    model = {"specrt.model_id": ("aa", STRING)}
    target = rewritten(golden_path("qwen35"), tmp_path / "target.gguf", keys=model)
    for own, fits in (("aa", True), ("bb", False)):
        path = changed("dflash-qwen35", tmp_path, keys={"specrt.target_id": (own, STRING)})
        bind(path, "qwen35")  # a target that says nothing
        if fits:
            bind(path, target)
            continue
        with pytest.raises(MismatchError, match=r"specrt.target_id = bb, .*model_id = aa"):
            bind(path, target)


def test_loading_tells_at_once(tmp_path):
    """Not the first draft."""
    path = changed("dflash-qwen35", tmp_path, keys={"dflash.block_size": (1, U32)})
    with pytest.raises(UnsupportedError, match="block_size = 1"):
        specrt.load(golden_path("qwen35"), draft_model=path, device="reference", verbose=False)


@pytest.mark.parametrize("name", ["dflash2-qwen35", "dspark-qwen3-bonus"])
def test_a_mutated_header_is_an_error_or_a_drafter(name, tmp_path):
    raw, path = golden_path(name).read_bytes(), tmp_path / "mutated.gguf"
    with open_gguf(golden_path(name)) as file:
        header = len(raw) - sum(tensor.nbytes for tensor in file.tensors.values())
    start = raw.index(b"dflash.context_length")
    tokens = raw.index(b"tokenizer.ggml.tokens"), raw.index(b"tokenizer.ggml.mask_token_id")
    places = [*range(start, tokens[0]), *range(tokens[1], header)]
    random, outcomes = np.random.default_rng(7), set()
    for _ in range(250):
        mutated = bytearray(raw)
        for place in random.choice(places, random.integers(1, 4)):
            kind = random.integers(3)
            if kind == 0:
                mutated[place] ^= int(random.integers(1, 256))
            elif kind == 1:
                mutated[place] = 0
            else:
                word = [0, 1, 2**16, 2**31 - 1, 2**32 - 1][random.integers(5)]
                mutated[place : place + 4] = struct.pack("<I", word)
        path.write_bytes(mutated)
        try:
            bind(path, DRAFTER_GOLDENS[name])
            outcomes.add("drafter")
        except SpecrtError as error:
            assert str(error)
            outcomes.add("error")
    assert outcomes == {"drafter", "error"}
