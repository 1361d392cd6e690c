"""Perplexity of real models against an independent engine's, over the same chunks."""

from pathlib import Path

import numpy as np
import pytest

import specrt
from specrt.errors import ContextError, OptionError
from tests.accuracy import PERPLEXITY_SHARE
from tests.models_on_disk import GOLDEN, load_golden, real_model
from tests.tiny_model import write_tiny_model

EXPECTED = {"smollm2-135m": 11.1306, "gemma3-270m": 12.4626}


@pytest.mark.real_model
@pytest.mark.parametrize("name", EXPECTED)
def test_real_models(name):
    llm = specrt.load(real_model(name), kv_type="f32", context=512, spec="none", verbose=False)
    got = llm.perplexity((GOLDEN / "perplexity.txt").read_text())
    assert got == pytest.approx(EXPECTED[name], rel=PERPLEXITY_SHARE)


def test_the_formula(tmp_path: Path):
    """Two chunks of eight, written out over the logits of each chunk."""
    llm = specrt.load(write_tiny_model(tmp_path / "tiny.gguf"), spec="none", verbose=False)
    text = "abcdefgh ijklmno pq"
    ids = llm.tokenizer.encode(text)
    assert 16 <= len(ids) < 24
    losses = []
    for start in (0, 8):
        chunk = ids[start : start + 8]
        rows = llm.logits(chunk).astype(np.float64)
        logs = rows - np.log(np.exp(rows).sum(axis=1, keepdims=True))
        losses += [-logs[place, chunk[place + 1]] for place in range(4, 7)]
    assert llm.perplexity(text, n_ctx=8) == pytest.approx(np.exp(np.mean(losses)), rel=1e-12)


def test_texts_and_contexts_that_do_not_fit(tmp_path: Path):
    llm = specrt.load(write_tiny_model(tmp_path / "tiny.gguf"), spec="none", verbose=False)
    with pytest.raises(OptionError, match="longer text"):
        llm.perplexity("short", n_ctx=512)
    with pytest.raises(ContextError, match="context"):
        llm.perplexity("x" * 2000, n_ctx=1000)
    with pytest.raises(OptionError, match="no tokens"):
        load_golden("llama").logits([])
