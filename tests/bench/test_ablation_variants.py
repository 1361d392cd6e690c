"""Other ways of rolling back and drafting: each gives the tokens of plain decoding."""

from functools import cache
from types import SimpleNamespace

import pytest

from specrt import SamplingParams, SpecOptions
from specrt.bench.ablation_variants import ALL, ClockedHead, Model, Variant, own_head
from specrt.generate import Generator
from specrt.llm import load
from specrt.lossless import Cell, fixed_request, run_to_the_end
from specrt.mixed_drafts import MixedDrafts
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


def way_of(shared, ablation):
    """An ablation's target, and who generates with it."""
    target = ablation.target(shared)
    speculation = Speculation(target, Registry())
    generator = Generator(target, shared.llm.tokenizer, speculation, SpecOptions("none"))
    return SimpleNamespace(target=target, generator=generator)


@pytest.mark.parametrize("num_draft", [1, 3, 7])
@pytest.mark.parametrize("name", ["tiny", "qwen35", "qwen35-accept", "qwen35-quant", "qwen35moe"])
@pytest.mark.parametrize("ablation", ALL, ids=NAMES)
def test_every_way_gives_the_tokens_of_plain_decoding(ablation, name, num_draft):
    """With drafts of which none, a part or all is accepted, the head's own among them."""
    shared, cell = model(name), Cell("", "", num_draft)
    way = way_of(shared, ablation)
    head = DraftHeadSpeculator(ablation.head(shared, way.target))
    truth = prompt(name) + plain(name).token_ids
    for seed in range(6):
        drafts = MixedDrafts(truth, way.target.vocab_size, seed, head)
        request = fixed_request(way, prompt(name), PARAMS, (drafts,), num_draft)
        same(run_to_the_end(way, request, cell.count), plain(name))
        cell.num_inner += drafts.num_inner
        if cell.covered:
            return
    pytest.fail(f"never seen: {cell.missed}")


class Watched(DraftHeadSpeculator):
    """Notes how many rows before the last token wait when it is asked."""

    def __init__(self, head):
        super().__init__(head)
        self.head, self.waiting = head, []

    def propose(self, contexts):
        for sequence, *_ in contexts:
            cache_len, state = sequence.cursor.cache_len, sequence.drafter_states[self.head]
            assert state.heard == cache_len
            self.waiting.append(cache_len - min(state.taken_in, cache_len))
        return super().propose(contexts)


@pytest.mark.parametrize("unfolded", [False, True])
def test_unfolded_rows_do_not_wait(unfolded):
    shared = model("tiny")
    ablation = next(one for one in ALL if ("catch-up" in one.name) == unfolded)
    way = way_of(shared, ablation)
    watched = Watched(ablation.head(shared, way.target))
    request = fixed_request(way, prompt("tiny"), PARAMS, (watched,), 3)
    same(run_to_the_end(way, request), plain("tiny"))
    assert (max(watched.waiting[1:]) > 0) == (not unfolded)


def test_hearing_of_kept_rows_is_timed_and_that_of_the_prompt_is_not():
    shared = model("tiny")
    way = way_of(shared, ALL[0])
    head = ClockedHead(own_head(shared, way.target))
    request = fixed_request(way, prompt("tiny"), PARAMS, (head,), 3)
    way.generator.runtime.prefill(request)
    assert head.seconds == 0
    for _ in range(3):
        way.generator.runtime.step([request])
    phases = request.stats.phases
    assert 0 < head.seconds < (phases.draft + phases.commit) / 1e3


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
    assert variant.head.seconds > 0 and stats.speculator == "synthetic"
