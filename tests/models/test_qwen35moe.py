"""qwen35moe: its file's forms and keys, and drafts that are taken back."""

import re
from functools import cache

import gguf
import numpy as np
import pytest

import specrt
from specrt import SamplingParams
from specrt.errors import FormatError, MismatchError, UnsupportedError
from specrt.gguf.reader import open_gguf
from specrt.state.messages import Window
from tests.accuracy import assert_golden_float, assert_golden_quantised
from tests.models_on_disk import golden_arrays, golden_path, load_golden
from tests.rewriting import rewritten

UINT = gguf.GGUFValueType.UINT32
PROMPT = list(range(40, 60))
LAYERS = range(4)


def load(path, **options):
    return specrt.load(path, verbose=False, **options)


@cache
def golden(device="cpu"):
    return load_golden("qwen35moe", device=device)


@cache
def golden_logits():
    return load(golden_path("qwen35moe")).logits(PROMPT)


def tensors(pattern):
    with open_gguf(golden_path("qwen35moe")) as file:
        return {n: t.numpy().copy() for n, t in file.tensors.items() if re.search(pattern, n)}


def written(tmp_path, **changes):
    return rewritten(golden_path("qwen35moe"), tmp_path / "m.gguf", **changes)


def test_gate_and_up_may_be_one_tensor(tmp_path):
    sides = tensors(r"ffn_(gate|up)_exps")
    fused = {
        f"blk.{i}.ffn_gate_up_exps.weight": np.concatenate(
            [sides[f"blk.{i}.ffn_{side}_exps.weight"] for side in ("gate", "up")], axis=1
        )
        for i in LAYERS
    }
    path = written(tmp_path, extra=fused, drop=tuple(sides))
    np.testing.assert_array_equal(load(path).logits(PROMPT), golden_logits())
    one, other = load(path).plan, load(golden_path("qwen35moe")).plan
    assert (one.weights, one.buffers) == (other.weights, other.buffers)


def test_widths_follow_from_that_of_a_dense_model(tmp_path):
    """F / k for an expert, F for the one that all rows go to."""
    arch = "qwen35moe"
    keys = {f"{arch}.feed_forward_length": (72, UINT)}
    shared = {
        name: np.repeat(values, 9, axis=int("down" in name))[..., :72]
        if "down" in name
        else np.repeat(values, 9, axis=0)[:72]
        for name, values in tensors(r"(gate|up|down)_shexp").items()
        if "gate_inp" not in name
    }
    lengths = tuple(f"{arch}.expert{name}_feed_forward_length" for name in ("", "_shared"))
    path = written(tmp_path, keys=keys, tensors=shared, drop=lengths)
    named = {f"{arch}.expert_feed_forward_length": (24, UINT), lengths[1]: (72, UINT)}
    other = rewritten(golden_path(arch), tmp_path / "n.gguf", keys=named, tensors=shared)
    np.testing.assert_array_equal(load(path).logits(PROMPT), load(other).logits(PROMPT))


@pytest.mark.parametrize(
    ("key", "value", "error"),
    [
        ("expert_count", 2**14 + 1, FormatError),
        ("expert_count", 7, MismatchError),
        ("expert_count", 0, FormatError),
        ("expert_used_count", 0, FormatError),
        ("expert_used_count", 9, FormatError),
        ("expert_feed_forward_length", 0, FormatError),
        ("expert_feed_forward_length", 25, MismatchError),
        ("expert_shared_feed_forward_length", 0, FormatError),
        ("expert_shared_feed_forward_length", 31, MismatchError),
    ],
)
def test_impossible_values(key, value, error, tmp_path):
    path = written(tmp_path, keys={f"qwen35moe.{key}": (value, UINT)})
    with pytest.raises(error, match=r"expert|_exps|_shexp|feed_forward_length"):
        load(path)


@pytest.mark.parametrize(
    "key",
    ["expert_count", "expert_used_count", "expert_feed_forward_length",
     "expert_shared_feed_forward_length"],
)  # fmt: skip
def test_each_required_key(key, tmp_path):
    path = written(tmp_path, drop=(f"qwen35moe.{key}",))
    with pytest.raises(MismatchError, match=f"{key}|feed_forward_length"):
        load(path)


def test_a_width_that_experts_cannot_share(tmp_path):
    keys = {"qwen35moe.feed_forward_length": (73, UINT)}
    path = written(tmp_path, keys=keys, drop=("qwen35moe.expert_feed_forward_length",))
    with pytest.raises(FormatError, match="73 is no multiple of expert_used_count = 3"):
        load(path)


@pytest.mark.parametrize(
    "name", ["gate_inp", "gate_exps", "up_exps", "down_exps", "gate_inp_shexp", "down_shexp"]
)
def test_each_required_tensor(name, tmp_path):
    path = written(tmp_path, drop=(f"blk.2.ffn_{name}.weight",))
    with pytest.raises(MismatchError, match=f"blk.2.ffn_{name}"):
        load(path)


def test_experts_of_integers_are_refused(tmp_path):
    wrong = {"blk.0.ffn_up_exps.weight": np.zeros((8, 24, 96), np.int32)}
    with pytest.raises(UnsupportedError, match=r"ffn_up_exps.*I32"):
        load(written(tmp_path, tensors=wrong))


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """Of two layers gate or up are quantised: rows are prepared in more than one form."""
    found = {
        name: gguf.quants.quantize(values.astype(np.float32), gguf.GGMLQuantizationType.Q8_0)
        for name, values in tensors(r"blk\.(0\.ffn_(gate|up)|2\.ffn_up)_exps").items()
    }
    assert len(found) == 3
    types = dict.fromkeys(found, gguf.GGMLQuantizationType.Q8_0)
    path = tmp_path_factory.mktemp("mixed") / "m.gguf"
    return rewritten(golden_path("qwen35moe"), path, tensors=found, types=types)


@pytest.mark.parametrize("device", ["cpu", "emulator", "reference"])
def test_experts_of_several_types(mixed, device):
    ids = golden_arrays("qwen35moe")["tokens"].tolist()
    llm = load(mixed, device=device, kv_type="f32", spec="none")
    target, sequence = llm.target, llm.target.open_sequence()
    for _ in target.prefill(sequence, ids[:39]):
        pass
    alone = []
    together = target.verify([Window(sequence, ids[39:], 39)], logits=True).logits.copy()
    for position in range(39, len(ids)):
        window = Window(sequence, ids[position : position + 1], position)
        alone.append(target.verify([window], logits=True).logits[0].copy())
        sequence.cursor = target.rollback(sequence, 1)
    if device != "reference":  # which adds up by NumPy, in an order that depends on sizes
        np.testing.assert_array_equal(together, np.array(alone))
    assert_golden_quantised(together, golden_arrays("qwen35moe")["logits_prefill"][39:])


@pytest.mark.parametrize("device", ["cpu", "emulator"])
@pytest.mark.parametrize("num_kept", range(5))
def test_what_follows_a_draft_of_which_a_part_was_kept(num_kept, device):
    arrays, llm = golden_arrays("qwen35moe"), golden(device)
    target, start = llm.target, int(arrays["rollback_prefix_len"])
    tokens = arrays["tokens"].tolist()[:start]
    draft, follow = (arrays[f"rollback_{name}"].tolist() for name in ("draft", "cont"))
    sequence = target.open_sequence()
    for _ in target.prefill(sequence, tokens):
        pass
    got = target.verify([Window(sequence, draft, start)], logits=True).logits
    assert_golden_float(got, arrays["rollback_draft_logits"])
    if num_kept:
        sequence.cursor = target.rollback(sequence, num_kept)
    window = Window(sequence, follow, start + num_kept)
    got = target.verify([window], logits=True).logits
    assert_golden_float(got, arrays[f"rollback_keep{num_kept}_logits"])
    target.close_sequence(sequence)


def test_a_saved_session_goes_on(tmp_path):
    llm = golden()
    params = SamplingParams(max_tokens=6, ignore_eos=True)
    with llm.session() as session:
        begun = session.generate(PROMPT, params)
        session.save(tmp_path / "session")
        longer = [*PROMPT, *begun.token_ids, *PROMPT[:4]]
        expected = session.generate(longer, params)
    with specrt.Session.load(llm, tmp_path / "session") as session:
        got = session.generate(longer, params)
    assert got.token_ids == expected.token_ids
    assert got.stats.cached_tokens == expected.stats.cached_tokens > len(PROMPT)
