"""Parts of block drafters switched off: other drafts or none, and the same text."""

import pytest

from specrt import SamplingParams, SpecOptions
from specrt.errors import OptionError
from specrt.host import HostOps
from specrt.settings import DFLASH_CONV, DFLASH_FUSED, DFLASH_SELECTOR
from tests.following import Following
from tests.models_on_disk import DRAFTER_GOLDENS, golden_arrays, load_golden

FLOATS = [name for name in DRAFTER_GOLDENS if not name.endswith("quant")]
SWITCHES = [one.variables[0] for one in (DFLASH_SELECTOR, DFLASH_CONV, DFLASH_FUSED)]


def drafts(name, device="cpu"):
    """Of each block, ids and confidences, behind ever more of the golden's tokens."""
    llm, tokens = load_golden(DRAFTER_GOLDENS[name], name, device=device), golden_arrays(name)
    tokens, session, made = tokens["tokens"].tolist(), None, []
    session = Following(llm, "block")
    for start, end in ((0, 17), (17, 20), (20, 30)):
        session.prefill(tokens[start:end], tokens[end])
        made.append(session.draft(session.speculator.max_draft)[:2])
    return made


@pytest.mark.parametrize("name", FLOATS)
def test_unfused_drafts_are_the_same(name, monkeypatch):
    expected = drafts(name)
    monkeypatch.setenv("SPECRT_DFLASH_FUSED", "0")
    for op in ("block_conv", "lattice", "markov", "load_rows"):
        monkeypatch.delattr(HostOps, op)
    for (tokens, confidences), (ids, others) in zip(drafts(name), expected, strict=True):
        assert tokens == ids
        assert confidences == pytest.approx(others, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("name", ["dflash2-qwen35", "dspark-qwen3-bonus"])
def test_unfused_drafts_of_kernels_are_the_same(name, monkeypatch):
    monkeypatch.setenv("TS_DFLASH_FUSED", "off")
    fused_off = drafts(name, "emulator")
    monkeypatch.delenv("TS_DFLASH_FUSED")
    assert [tokens for tokens, _ in fused_off] == [tokens for tokens, _ in drafts(name)]


@pytest.mark.parametrize("name", ["dflash2-qwen35", "dflash2-muse"])
@pytest.mark.parametrize("variable", SWITCHES[:2])
def test_without_a_part_drafts_are_others(name, variable, monkeypatch):
    expected = drafts(name)
    monkeypatch.setenv(variable, "0")
    assert drafts(name) != expected


@pytest.mark.parametrize("name", DRAFTER_GOLDENS)
@pytest.mark.parametrize("variable", SWITCHES)
def test_the_text_is_the_same(name, variable, monkeypatch):
    monkeypatch.setenv(variable, "0")
    llm = load_golden(DRAFTER_GOLDENS[name], name)
    params = SamplingParams(max_tokens=12, ignore_eos=True)
    prompt = golden_arrays(name)["tokens"].tolist()[:20]
    spec = SpecOptions("block", pmin=0.0, governor=False)
    got = llm.generate(prompt, params, spec=spec)
    assert got.stats.num_drafted
    assert got.token_ids == llm.generate(prompt, params).token_ids


def test_without_selector_the_likeliest_ids_are_drafted(monkeypatch):
    monkeypatch.setenv("TS_DFLASH_SELECTOR", "0")
    arrays = golden_arrays("dflash2-qwen35")
    llm = load_golden("qwen35", "dflash2-qwen35")
    session = Following(llm, "block")
    tokens, end = arrays["tokens"].tolist(), int(arrays["block0_n_injected"])
    session.prefill(tokens[:end], int(arrays["block0_ids"][0]))
    expected = arrays["block0_logits"][1:].argmax(axis=1).tolist()
    assert session.draft(7).tokens == expected != arrays["block0_draft"].tolist()


def test_a_switch_is_one_or_zero(monkeypatch):
    monkeypatch.setenv("SPECRT_DFLASH_CONV", "perhaps")
    with pytest.raises(OptionError, match="SPECRT_DFLASH_CONV = 'perhaps'"):
        load_golden("qwen35", "dflash-qwen35", spec="block")
