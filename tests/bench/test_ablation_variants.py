"""Other ways of rolling back and drafting: each gives the tokens of plain decoding."""

from functools import cache
from types import SimpleNamespace

import pytest

from specrt import SamplingParams, SpecOptions
from specrt.bench.ablation_variants import ALL, Ablation, Model, Variant
from specrt.generate import Generator
from specrt.llm import load
from specrt.lossless import Cell, fixed_request, run_to_the_end
from specrt.mixed_drafts import MixedDrafts
from specrt.settings import VERIFY_SNAPSHOTS
from specrt.speculative.algorithms.draft_head import DraftHeadSpeculator
from specrt.speculative.registry import Registry
from specrt.speculative.speculation import Speculation
from tests.models_on_disk import golden_arrays, load_golden
from tests.running import run, same

NAMES = [one.name for one in ALL]
PARAMS = SamplingParams(max_tokens=50, ignore_eos=True)


@cache
def model(name):
    llm = load(spec="none", verbose=False) if name == "tiny" else load_golden(name)
    return Model(llm, SpecOptions("none"))


@cache
def prompt(name):
    if name == "tiny":
        return model(name).llm.tokenizer.encode("class Vector:\n    def __init__(self")
    return golden_arrays(name)["tokens"].tolist()[:30]


@cache
def plain(name):
    return run(model(name).llm, prompt(name), PARAMS)


@pytest.mark.parametrize("num_draft", [1, 3, 7])
@pytest.mark.parametrize("name", ["tiny", "qwen35", "qwen35-accept", "qwen35-quant", "qwen35moe"])
@pytest.mark.parametrize("ablation", ALL, ids=NAMES)
def test_every_way_gives_the_tokens_of_plain_decoding(ablation, name, num_draft):
    """With drafts of which none, a part or all is accepted, the head's own among them."""
    shared = model(name)
    target = ablation.target(shared)
    speculation = Speculation(target, Registry())
    generator = Generator(target, shared.llm.tokenizer, speculation, SpecOptions("none"))
    way = SimpleNamespace(target=target, generator=generator)
    head, cell = DraftHeadSpeculator(ablation.head(shared, target)), Cell("", "", num_draft)
    truth = prompt(name) + plain(name).token_ids
    for seed in range(6):
        drafts = MixedDrafts(truth, target.vocab_size, seed, head)
        request = fixed_request(way, prompt(name), PARAMS, (drafts,), num_draft)
        same(run_to_the_end(way, request, cell.count), plain(name))
        cell.num_inner += drafts.num_inner
        if cell.covered:
            return
    pytest.fail(f"never seen: {cell.missed}")


@pytest.mark.parametrize("late", [1, 32])
def test_unfolded_rows_are_taken_in_when_they_are_heard_of(late):
    """All rows before the last token; folded, those that were kept last wait."""
    shared = model("tiny")
    ablation = next(one for one in ALL if "catch-up" in one.name)
    target = ablation.target(shared)
    make = ablation.head if late == 1 else Ablation("", VERIFY_SNAPSHOTS, True).head
    head = make(shared, target)
    generator = Generator(
        target, shared.llm.tokenizer, Speculation(target, Registry()), SpecOptions("none")
    )
    way = SimpleNamespace(target=target, generator=generator)
    request = fixed_request(way, prompt("tiny"), PARAMS, (DraftHeadSpeculator(head),), 3)
    generator.runtime.prefill(request)
    waited = 0
    for _ in range(8):
        generator.runtime.step([request])
        cursor, state = request.sequence.cursor, request.sequence.drafter_states[head]
        assert state.heard == cursor.cache_len
        waited += cursor.cache_len - min(state.taken_in, cursor.cache_len)
    assert (waited > 0) == (late > 1)


def test_a_synthetic_drafter_works_its_head():
    shared = Model(model("tiny").llm, SpecOptions("none"), acceptance=0.5)
    variant = Variant(shared, None)
    variant.learn(plain("tiny"))
    with variant.stream(prompt("tiny"), PARAMS) as stream:
        for _ in stream:
            pass
    same(stream.completion, plain("tiny"))
    stats = stream.completion.stats
    assert stats.num_draft_counts[3] > 10  # whatever the head was sure of
    assert 0.2 < stats.acceptance_rate < 0.8
    assert stats.phases.commit > 0 and stats.speculator == "synthetic"
