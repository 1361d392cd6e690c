"""What a muse-glimmer file may leave out and must not say."""

import re

import gguf
import numpy as np
import pytest

import specrt
from specrt.errors import FormatError, MismatchError, UnsupportedError
from specrt.gguf.reader import open_gguf
from specrt.inspect import describe
from specrt.models import muse_glimmer
from tests.accuracy import assert_golden_float
from tests.models_on_disk import golden_arrays, golden_path
from tests.rewriting import rewritten

NAME, BLOCK = "muse-glimmer", "blk.3."
PATTERN = "attention.sliding_window_pattern"
TOKENS = golden_arrays(NAME)["tokens"].tolist()
TYPES = gguf.GGUFValueType
UINT, FLOAT, BOOLS = TYPES.UINT32, TYPES.FLOAT32, TYPES.ARRAY


@pytest.fixture
def write(tmp_path):
    """Write the golden file with keys exchanged or dropped."""

    def write(keys=None, drop=(), **more):
        named = {f"{NAME}.{key}": value for key, value in (keys or {}).items()}
        dropped = tuple(f"{NAME}.{key}" for key in drop)
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.gguf"
        return rewritten(golden_path(NAME), path, keys=named, drop=dropped, **more)

    return write


def load(path):
    return specrt.load(path, kv_type="f32", verbose=False)


def logits(path):
    return load(path).logits(TOKENS)


@pytest.mark.parametrize("name", ["token_embd", "output", "output_norm"])
def test_each_required_tensor(name, tmp_path):
    path = rewritten(golden_path(NAME), tmp_path / "m.gguf", drop=(f"{name}.weight",))
    with pytest.raises(MismatchError, match=rf"'{name}\.weight'"):
        load(path)


def test_each_required_tensor_of_a_block(tmp_path):
    with open_gguf(golden_path(NAME)) as file:
        names = [name for name in file.tensors if name.startswith(BLOCK)]
    assert len(names) == 14
    for name in names:
        path = rewritten(golden_path(NAME), tmp_path / "m.gguf", drop=(name,))
        with pytest.raises(MismatchError, match=re.escape(repr(name))):
            load(path)


@pytest.mark.parametrize(
    ("key", "value", "kind"),
    [
        ("attention.sliding_window", 0, UINT),
        ("attention.sliding_window", 2**24 + 1, UINT),
        ("attention.sliding_window", 2**32 - 1, UINT),
        (PATTERN, 0, UINT),
        (PATTERN, [True, True, False, True], BOOLS),
        (PATTERN, [True, True, False, True, False, True], BOOLS),
        ("logit_scale", 0.0, FLOAT),
        ("logit_scale", -0.4, FLOAT),
        ("logit_scale", 1e-45, FLOAT),
        ("logit_scale", float("nan"), FLOAT),
        ("logit_scale", float("inf"), FLOAT),
        ("logit_scale", 1e300, TYPES.FLOAT64),
        ("logit_scale", "0.4", TYPES.STRING),
        ("final_logit_softcapping", -1.0, FLOAT),
        ("final_logit_softcapping", float("nan"), FLOAT),
        ("rope.dimension_count", 34, UINT),
        ("rope.dimension_count", 0, UINT),
    ],
)
def test_impossible_values(write, key, value, kind):
    with pytest.raises(FormatError, match=re.escape(key)):
        load(write({key: (value, kind)}))


@pytest.mark.parametrize("base", [0.0, -1.0, float("nan"), float("inf")])
def test_impossible_rotary_bases(write, base):
    with pytest.raises(MismatchError, match="freq_base"):
        load(write({"rope.freq_base_swa": (base, FLOAT)}))


def test_a_scaling_of_another_kind_is_refused(write):
    with pytest.raises(UnsupportedError, match="yarn"):
        load(write({"rope.scaling.type": ("yarn", TYPES.STRING)}))


@pytest.mark.parametrize(
    ("key", "default", "kind", "other"),
    [
        ("final_logit_softcapping", 30.0, FLOAT, 8.0),
        ("rope.freq_base_swa", 10000.0, FLOAT, 500.0),
        (PATTERN, [True, True, True, False, True], BOOLS, [True, True, False, True, False]),
        (PATTERN, 4, UINT, 3),
        ("rope.dimension_count", 32, UINT, 16),
    ],
)
def test_what_a_missing_key_stands_for(write, key, default, kind, other):
    missing = logits(write(drop=(key,)))
    assert np.array_equal(missing, logits(write({key: (default, kind)})))
    assert not np.allclose(missing, logits(write({key: (other, kind)})), atol=1e-2)


def test_a_pattern_by_number_is_that_by_layer(write):
    by_number, by_layer = (
        logits(write({PATTERN: pattern}))
        for pattern in ((3, UINT), ([True, True, False, True, True], BOOLS))
    )
    assert np.array_equal(by_number, by_layer)


def test_no_softcap(write):
    """The logits are then those of the capped file before the cap."""
    plain = logits(write({"final_logit_softcapping": (0.0, FLOAT)}))
    capped = golden_arrays(NAME)["logits_prefill"].astype(np.float64)
    assert np.abs(plain).max() > 8
    assert_golden_float((8 * np.tanh(plain.astype(np.float64) / 8)).astype(np.float32), capped)


@pytest.fixture
def faint(write):
    """Sub-layers whose results are a 32nd of what they were: the norms behind them undo that."""
    with open_gguf(golden_path(NAME)) as file:
        tensors = {
            name: (tensor.numpy() / 32).astype(np.float32)
            for name, tensor in file.tensors.items()
            if name.endswith(("attn_output.weight", "ffn_down.weight"))
        }
    assert len(tensors) == 10
    return write(tensors=tensors)


def test_the_post_norms_have_an_epsilon_of_their_own(faint, monkeypatch):
    expected = golden_arrays(NAME)["logits_prefill"]
    assert_golden_float(logits(faint), expected)
    monkeypatch.setattr(muse_glimmer, "POST_EPS", 1e-5)
    with pytest.raises(AssertionError):
        assert_golden_float(logits(faint), expected)


def test_full_layers_do_not_turn(write):
    """A file of full layers knows no positions but by what each row sees: its base is of no use."""
    full = {PATTERN: ([False] * 5, BOOLS)}
    plain, other = (
        logits(write(full | {"rope.freq_base": (base, FLOAT)})) for base in (10000.0, 77.0)
    )
    assert np.array_equal(plain, other)
    turned = logits(write(full | {PATTERN: ([False] * 4 + [True], BOOLS)}))
    assert not np.allclose(plain, turned, atol=1e-2)


def test_inspect_describes_it():
    with open_gguf(golden_path(NAME)) as file:
        rows = dict(describe(file).rows)
    assert (rows["architecture"], rows["sliding window"]) == (NAME, "12")
    assert (rows["layers"], rows["draft head"]) == ("5", "none")
