"""The embedded model's logits and answers: a really trained model, so drafts land by themselves."""

import json
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import specrt
from specrt import SamplingParams, SpecOptions
from specrt.bench.prompts import prompts_for
from specrt.lossless import PARAMS, Cell
from specrt.mixed_drafts import MixedDrafts
from tests.accuracy import assert_golden_quantised
from tests.following import Following
from tests.models_on_disk import GOLDEN, golden_arrays
from tests.running import run, same

TOKENS = 120


@cache
def tiny(**options):
    return specrt.load(**{"spec": "none", "verbose": False} | options)


def speculator(llm, drafter: str):
    """The named one, None for scripted drafts."""
    if drafter == "scripted":
        return None
    (found,) = llm.speculation.resolve(SpecOptions(type=drafter)).speculators
    return found


@cache
def plain(setting: str, prompt: int):
    llm = tiny()
    (message,) = prompts_for(None)[prompt].messages
    params = replace(PARAMS[setting], max_tokens=TOKENS, ignore_eos=True)
    return run(llm, llm.tokenizer.encode(message["content"]), params)


@pytest.mark.parametrize("device", ["cpu", "emulator", "reference"])
def test_logits_are_those_of_the_training_code(device):
    """Of the very file, its weights as float32."""
    arrays = golden_arrays("tiny", "torch.npz")
    rows = arrays["rows"] if device == "cpu" else arrays["rows"][:3]  # the others are slow
    got = tiny(device=device, kv_type="f32").logits(arrays["tokens"][: rows[-1] + 1])[rows]
    assert_golden_quantised(got, arrays["logits"][: len(rows)].astype(np.float32))


def test_it_is_the_model_whose_unquantised_file_another_engine_ran():
    """llama.cpp's logits of the F16 file: 4 bits a weight are as far from it as this."""
    golden = json.loads((GOLDEN / "tiny" / "golden.json").read_text())
    got, trunk = tiny(kv_type="f32").logits(golden["ids"]), golden["trunk"]
    assert (got.argmax(-1) == trunk["argmax"]).mean() >= 0.94
    for row, top in trunk["top"].items():
        ids, expected = zip(*top, strict=True)
        np.testing.assert_allclose(got[int(row)][list(ids)], expected, atol=1.0)


def test_the_head_drafts_what_the_training_code_drafts():
    """Behind 100 positions of held-out text, three ids each; it multiplies floats, not 8 bits."""
    arrays = golden_arrays("tiny", "torch.npz")
    tokens, equal = arrays["tokens"].tolist(), 0
    following = Following(tiny(kv_type="f32"))
    for position, expected in zip(arrays["positions"].tolist(), arrays["drafts"], strict=True):
        start = following.sequence.cursor.cache_len
        following.prefill(tokens[start:position], tokens[position])
        equal += following.draft(3).tokens == expected.tolist()
    assert equal >= 95


def test_the_head_is_accepted_as_often_as_another_engine_s():
    """llama.cpp with this file, three ids a draft and no gate: sum m / sum K = 0.864."""
    llm, drafted, accepted = tiny(kv_type="f16"), 0, 0
    spec = SpecOptions(type="draft-head", num_draft=3, pmin=0.0, governor=False)
    params = SamplingParams(max_tokens=200, ignore_eos=True)
    for prompt in prompts_for(None):
        (message,) = prompt.messages
        stats = llm.generate(message["content"], params, spec=spec).stats
        drafted, accepted = drafted + stats.num_drafted, accepted + stats.num_accepted
    assert accepted / drafted == pytest.approx(0.864, abs=0.02)


@pytest.mark.parametrize("num_draft", [1, 3, 8])
@pytest.mark.parametrize("drafter", ["scripted", "ngram", "draft-head"])
@pytest.mark.parametrize("setting", ["greedy", "sampled"])
def test_losslessness(setting, drafter, num_draft):
    llm, cell = tiny(), Cell(setting, drafter, num_draft)
    for seed in range(4):
        for prompt in (0, 6):
            expected = plain(setting, prompt)
            truth = expected.prompt_token_ids + expected.token_ids
            inner = speculator(llm, drafter)
            drafts = MixedDrafts(truth, llm.target.vocab_size, seed, inner)
            params = replace(PARAMS[setting], max_tokens=TOKENS, ignore_eos=True)
            got = run(llm, expected.prompt_token_ids, params, drafts, num_draft, cell.count)
            same(got, expected)
            cell.num_inner += drafts.num_inner
        if cell.covered:
            return
    pytest.fail(f"never seen: {cell.missed}: {cell}")


@pytest.mark.parametrize("setting", ["greedy", "sampled"])
def test_as_users_have_it(setting):
    llm, drafted = tiny(), 0
    params = replace(PARAMS[setting], max_tokens=TOKENS, ignore_eos=True)
    fixed = SpecOptions(type="ngram", num_draft=8, governor=False)
    for prompt in range(8):
        expected = plain(setting, prompt)
        for spec in ("auto", "ngram", "draft-head", "ngram,draft-head", fixed):
            got = llm.generate(expected.prompt_token_ids, params, spec=spec)
            same(got, expected)
            drafted += got.stats.num_drafted
    assert drafted > 100


def test_greedy_text_looks_like_python():
    prompt = "def __init__(self, name, value):\n"
    text = tiny().generate(prompt, SamplingParams(max_tokens=24)).text
    assert text.startswith("        self._name = value\n")
