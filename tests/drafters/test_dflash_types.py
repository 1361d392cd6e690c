"""A block drafter of each weight type drafts what its weights, as floats, draft."""

import gguf
import numpy as np
import pytest

from specrt.host import HostOps
from specrt.reference.quant_blocks import QUANT_TYPES, dequantize
from tests.accuracy import assert_golden_quantised
from tests.following import Following
from tests.models_on_disk import golden_arrays, golden_path, load_golden
from tests.quant_data import random_tensor
from tests.rewriting import rewritten

NAME, TARGET = "dflash2-qwen35-quant", "qwen35-quant"
TOKENS = golden_arrays(NAME)["tokens"].tolist()[:40]


def matrices():
    """Of the layers and of the encoder; all are 256 columns wide or twice as many."""
    for tensor in gguf.GGUFReader(golden_path(NAME)).tensors:
        name, shape = tensor.name, tuple(int(size) for size in reversed(tensor.shape))
        if len(shape) == 2 and (name.startswith("blk.") or name == "fc.weight"):
            yield name, shape


def block(path):
    """The logits of one block's rows."""
    session = Following(load_golden(TARGET, draft_model=path), "block")
    session.prefill(TOKENS[:-1], TOKENS[-1])
    draft = session.draft(session.speculator.max_draft)
    return session.speculator.head.passes.logits[: len(draft.tokens)].copy()


@pytest.mark.parametrize("type_name", QUANT_TYPES)
def test_a_quantised_drafter_is_its_weights_as_floats(type_name, tmp_path, monkeypatch):
    """Its likeliest ids are theirs, but where the next one is nearer than logits are exact.

    Rows are quantised twice, since random weights blow small differences up.
    """
    weight = HostOps.weight

    def exactly(ops, tensor, role="int8", bias=None):
        return weight(ops, tensor, "int8x2", bias)

    monkeypatch.setattr(HostOps, "weight", exactly)
    raw, floats = {}, {}
    for seed, (name, shape) in enumerate(matrices()):
        raw[name] = random_tensor(type_name, *shape, seed).raw
        floats[name] = dequantize(type_name, raw[name])
    kinds = dict.fromkeys(raw, gguf.GGMLQuantizationType[type_name])
    source = golden_path(NAME)
    logits = block(rewritten(source, tmp_path / "q.gguf", tensors=raw, types=kinds))
    expected = block(rewritten(source, tmp_path / "f.gguf", tensors=floats))
    assert_golden_quantised(logits, expected)
    best = np.sort(expected, axis=1)
    is_clear = best[:, -1] - best[:, -2] > 2 * np.abs(logits - expected).max()
    assert is_clear.mean() > 0.5
    assert (logits.argmax(1) == expected.argmax(1))[is_clear].all()
