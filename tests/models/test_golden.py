"""Logits against an independent engine's, with F32 KV: prefill, row by row, and in batches."""

import numpy as np
import pytest

from specrt import SamplingParams
from specrt.state.messages import Window, residual_entering
from tests.accuracy import assert_golden_float, assert_golden_quantised
from tests.models_on_disk import FLOAT_GOLDENS, GOLDENS, golden_arrays, load_golden

LAST = 16


def expected_logits(name: str, kind: str) -> np.ndarray:
    """The engine's rows; gemma3's come from float64, since the engine's gelu is half precision."""
    arrays = golden_arrays(name)
    if name == "gemma3":
        rows = arrays["logits_prefill_f64"]
        return rows if kind == "prefill" else rows[-LAST:]
    return arrays[f"logits_{kind}"]


def check(name: str, got: np.ndarray, expected: np.ndarray) -> None:
    (assert_golden_float if name in FLOAT_GOLDENS else assert_golden_quantised)(got, expected)


def last_rows(llm, tokens: list[int], batch: int) -> np.ndarray:
    """Prefill all but the last rows, then verify those in batches."""
    sequence = llm.target.open_sequence()
    first = len(tokens) - LAST
    for _ in llm.target.prefill(sequence, tokens[:first]):
        pass
    rows = []
    for start in range(first, len(tokens), batch):
        window = Window(sequence, tokens[start : start + batch], start)
        rows.append(llm.target.verify([window], logits=True).logits.copy())
        sequence.cursor = llm.target.rollback(sequence, batch)
    llm.target.close_sequence(sequence)
    return np.concatenate(rows)


@pytest.fixture(scope="module", params=["cpu", "emulator", "reference"])
def device(request) -> str:
    return request.param


@pytest.mark.parametrize("name", GOLDENS)
def test_logits(name, device):
    llm = load_golden(name, device=device)
    tokens = golden_arrays(name)["tokens"].tolist()
    check(name, llm.logits(tokens), expected_logits(name, "prefill"))
    check(name, last_rows(llm, tokens, 1), expected_logits(name, "decode"))
    check(name, last_rows(llm, tokens, 4), expected_logits(name, "verify"))


@pytest.mark.parametrize("name", GOLDENS)
def test_greedy_continuation(name):
    arrays = golden_arrays(name)
    llm = load_golden(name)
    greedy = arrays["greedy_tokens"].tolist()
    got = llm.generate(arrays["tokens"].tolist(), SamplingParams(max_tokens=len(greedy)))
    if name in FLOAT_GOLDENS:
        assert got.token_ids == greedy
    else:
        assert got.token_ids[0] == greedy[0]


@pytest.mark.parametrize("name", ["llama", "qwen3", "qwen35", "qwen35moe", "muse-glimmer"])
def test_taps(name, device):
    arrays = golden_arrays(name)
    llm = load_golden(name, device=device)
    tokens = arrays["tokens"].tolist()
    layers = [int(key.removeprefix("tap_layer_")) for key in arrays if key.startswith("tap_layer")]
    taps = {layer: residual_entering(layer) for layer in layers}
    assert layers
    sequence = llm.target.open_sequence()
    llm.target.verify([Window(sequence, tokens, 0)], taps=taps.values())
    (kept,) = llm.target.kept_rows(sequence, 0, len(tokens), taps.values())
    for layer, tap in taps.items():
        assert_golden_float(kept.taps[tap], arrays[f"tap_layer_{layer}"])
