"""Random models: each loads, drafts and answers; small shapes, the published ones' parts."""

import pytest

import specrt
from specrt import SamplingParams, SpecOptions
from tools import make_random_model
from tools.make_random_model import Shape, write_drafter, write_target

SMALL = Shape(256, 256, 6, 4, 1, 64, 64, 2, 2, 128)


@pytest.fixture(autouse=True)
def _few_ids(monkeypatch):
    for name, value in (("VOCABULARY", 512), ("MASK", 511), ("CONTEXT", 512), ("TOP_K", 8)):
        monkeypatch.setattr(make_random_model, name, value)


@pytest.mark.parametrize("kind", ["Q4_K", "Q8_0"])
def test_they_run(tmp_path, kind):
    target, drafter = tmp_path / "target.gguf", tmp_path / "drafter.gguf"
    write_target(SMALL, kind, target)
    write_drafter(SMALL, kind, drafter)
    own = specrt.load(target, verbose=False)
    params = SamplingParams(max_tokens=8, ignore_eos=True)
    plain = own.generate([1, 2, 3], params, spec="none")
    for llm, name in (
        (own, "draft-head"),
        (specrt.load(target, draft_model=drafter, verbose=False), "block"),
    ):
        spec = SpecOptions(type=name, pmin=0.0, governor=False)
        got = llm.generate([1, 2, 3], params, spec=spec)
        assert got.token_ids == plain.token_ids and got.stats.num_drafted
