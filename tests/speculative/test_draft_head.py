"""A trained head and its algorithm, both attached from outside."""

from functools import cache

import pytest

from specrt import SamplingParams, SpecOptions
from specrt.completion import completion
from specrt.gguf.reader import open_gguf
from specrt.host import HostOps
from specrt.llm import LLM
from specrt.state.messages import FINAL_HIDDEN, Draft
from tests.models_on_disk import golden_arrays, golden_path, load_golden
from tests.running import run, same

PARAMS = SamplingParams(max_tokens=30, ignore_eos=True, temperature=1.0, seed=5)
PROMPT = golden_arrays("llama")["tokens"].tolist()[:20]


class ToyHead:
    """Knows what plain decoding says; less sure from token to token. Drafts behind heard rows."""

    kind = "per_token"
    block_size = 1
    taps = frozenset({FINAL_HIDDEN})

    def __init__(self, truth):
        self.truth = truth
        self.asked = []

    def catch_up(self, rows):
        for kept in rows:
            known = kept.sequence.drafter_states.get(self, 0)
            assert kept.start_pos <= known
            assert kept.taps[FINAL_HIDDEN].shape[0] == len(kept.tokens)
            end = kept.start_pos + len(kept.tokens)
            kept.sequence.drafter_states[self] = max(known, end)

    def draft_chain(self, contexts):
        self.asked.append([(c.num_draft, c.pmin) for c in contexts])
        return [self.draft(context) for context in contexts]

    def draft(self, context):
        assert context.sequence.drafter_states[self] == context.sequence.cursor.cache_len
        tokens = self.truth[context.sequence.cursor.num_tokens :][: context.num_draft]
        sure = [p for k in range(len(tokens)) if (p := 0.95 - 0.1 * k) >= context.pmin]
        return Draft(tokens[: len(sure)], sure, "draft-head")

    def reset(self, sequence):
        known = sequence.drafter_states.get(self, 0)
        sequence.drafter_states[self] = min(known, sequence.cursor.num_tokens)

    def heard(self, sequence):
        return sequence.drafter_states.get(self, 0)


@cache
def plain():
    return run(load_golden("llama"), PROMPT, PARAMS)


def load(head):
    return LLM(
        open_gguf(golden_path("llama")),
        HostOps(1),
        context=256,
        kv_type="f32",
        spec=SpecOptions(),
        max_sequences=2,
        find_head=lambda: head,
    )


def toy():
    return ToyHead(PROMPT + plain().token_ids)


@pytest.mark.parametrize(
    ("options", "asked", "longest"),
    [
        ({"num_draft": 5}, (5, 0.75), 3),
        ({"num_draft": 2}, (2, 0.75), 2),
        ({"num_draft": 5, "pmin": 0.0}, (5, 0.0), 5),
        ({"pmin": 0.3}, (8, 0.3), 7),
    ],
    ids=str,
)
def test_an_attached_head_drafts_by_k_and_gate(options, asked, longest):
    head = toy()
    spec = SpecOptions(type="draft-head", governor=False, **options)
    got = load(head).generate(PROMPT, PARAMS, spec=spec)
    same(got, plain())
    assert got.stats.speculator == "draft-head" and not got.stats.declined
    assert head.asked[0] == [asked]
    assert max(got.stats.num_draft_counts) == longest
    assert got.stats.num_accepted == got.stats.num_drafted > 10


def test_k_and_gate_are_those_of_each_sequence():
    head = toy()
    llm = load(head)
    generator, runtime = llm.generator, llm.generator.runtime
    requests = [
        generator.request(
            llm.target.open_sequence(),
            PROMPT,
            PARAMS,
            SpecOptions(type="draft-head", governor=False, num_draft=k, pmin=p),
        )
        for k, p in ((5, 0.0), (3, 0.9))
    ]
    for request in requests:
        runtime.prefill(request)
    running = requests
    while running:
        runtime.step(running)
        running = [r for r in running if r.sequence.cursor.finish_reason is None]
    assert head.asked[0] == [(5, 0.0), (3, 0.9)]
    assert [max(r.stats.num_draft_counts) for r in requests] == [5, 1]
    for request in requests:
        same(completion(request), plain())


def test_auto_is_ngram_with_the_head_behind_it():
    got = load(toy()).generate(PROMPT, PARAMS)
    same(got, plain())
    assert got.stats.speculator == "ngram,draft-head"


def test_a_head_of_another_kind_is_declined():
    head = toy()
    head.kind, head.block_size, head.num_drafting = "block", 16, 15
    got = load(head).generate(PROMPT, PARAMS, spec="ngram,draft-head")
    same(got, plain())
    assert got.stats.speculator == "ngram"
    assert "does not draft token by token" in got.stats.declined[0]


def test_a_block_is_not_drafted_token_by_token():
    got = load(toy()).generate(PROMPT, PARAMS, spec="ngram,block")
    same(got, plain())
    assert got.stats.speculator == "ngram"
    assert "drafts token by token" in got.stats.declined[0]
