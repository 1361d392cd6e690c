"""Sliding layers past the place where their ring of pages is used again.

The golden file's own context is too short for that, so a copy has a longer one. What a ring must
give is what the same model gives when its sliding layers keep every position.
"""

from dataclasses import replace

import gguf
import numpy as np
import pytest

import specrt
from specrt import SamplingParams, Session, SpecOptions
from specrt.ops import PAGE
from specrt.speculative.registry import SpeculatorFactory, default_registry
from specrt.state.kv import PageLayout
from tests.fakes import ScriptedSpeculator
from tests.models_on_disk import golden_path
from tests.rewriting import rewritten
from tests.running import same

WINDOW, RING = 12, 640
PARAMS = SamplingParams(max_tokens=100, temperature=1.0, seed=5, ignore_eos=True, logprobs=1)
IDS = np.random.default_rng(3).integers(0, 512, 900).tolist()


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    keys = {"gemma3.context_length": (2048, gguf.GGUFValueType.UINT32)}
    return rewritten(
        golden_path("gemma3"), tmp_path_factory.mktemp("ring") / "model.gguf", keys=keys
    )


def load(path, **options):
    return specrt.load(path, context=1024, verbose=False, **{"spec": "none", **options})


@pytest.fixture(scope="module")
def llm(path):
    llm = load(path)
    assert llm.target.layout.ring_pages * PAGE == RING < llm.context
    assert llm.target.layout.window == WINDOW
    return llm


@pytest.fixture(scope="module")
def keeping(path):
    """The same model without rings."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PageLayout, "ring_pages", property(lambda layout: layout.pages))
        return load(path)


def test_prefill_chunks_and_single_rows_see_what_a_whole_cache_shows(llm, keeping):
    np.testing.assert_array_equal(llm.logits(IDS), keeping.logits(IDS))
    for count in (RING - 20, RING + 60):
        same(llm.generate(IDS[:count], PARAMS), keeping.generate(IDS[:count], PARAMS))


@pytest.mark.parametrize("num_draft", [3, 16, 64])
def test_drafts_rejected_at_every_offset_leave_the_old_rows_in_view(path, keeping, num_draft):
    """Each step keeps one token, so windows begin at every place before and after the wrap."""
    prompt, params = IDS[: RING - 70], replace(PARAMS, max_tokens=200)
    plain = keeping.generate(prompt, params)
    registry = default_registry()
    wrong = ScriptedSpeculator(lambda c: [(c.sequence.last_token + 1) % 512] * c.num_draft)
    registry.register(SpeculatorFactory("wrong", False, lambda *_: wrong))
    spec = SpecOptions(type="wrong", num_draft=num_draft, governor=False)
    got = load(path, spec=spec, registry=registry).generate(prompt, params)
    same(got, plain)
    assert got.stats.num_drafted - got.stats.num_accepted > 130 * num_draft


@pytest.mark.parametrize("common", [1, 12, 170, 171, 172, 500, 799])
def test_a_turn_goes_back_as_far_as_the_ring_still_reaches(llm, keeping, common):
    """Positions from 800 - 640 on are there, and a next row sees the 11 before it."""
    turn = [*IDS[:common], 7, 8, 9]
    with llm.session() as session:
        session.generate(IDS[:800], SamplingParams(max_tokens=1))
        got = session.generate(turn, PARAMS)
        again = session.generate([*IDS[:common], 7, 5], PARAMS)
    assert got.stats.cached_tokens == (common if common >= 171 else 0)
    same(got, keeping.generate(turn, PARAMS))
    assert again.stats.cached_tokens == common + 1
    same(again, keeping.generate([*IDS[:common], 7, 5], PARAMS))


def test_a_session_saved_after_the_wrap_goes_on_bit_for_bit(path, llm, keeping, tmp_path):
    with llm.session() as session:
        turn = session.generate(IDS[:700], PARAMS, spec="ngram")
        session.save(tmp_path / "saved")
    ids = IDS[:700] + turn.token_ids + [1, 2, 3]
    expected = keeping.generate(ids, PARAMS)
    with Session.load(load(path), tmp_path / "saved") as restored:
        got = restored.generate(ids, PARAMS)
    assert got.stats.cached_tokens == 799
    same(got, expected)
