"""The law: with speculation on, ids, text, finish reason, counts and logprobs are bitwise plain's.

A cell of the matrix counts only if its windows held m = 0, m = K and, for K > 1, a partial m; the
true continuation is mixed into every drafter's proposals for a seeded number of rows, and of those
some must be its own.
"""

from dataclasses import replace
from functools import cache

import pytest

import specrt
from specrt import SamplingParams, SpecOptions
from specrt.generate import chat_ids
from specrt.lossless import Cell, end_id
from specrt.mixed_drafts import MixedDrafts
from specrt.ops import PAGE
from specrt.speculative.algorithms.ngram import NgramSpeculator
from tests.models_on_disk import GOLDENS, bench_prompts, golden_arrays, load_golden, real_model
from tests.running import run, same

SETTINGS = {
    "greedy": SamplingParams(logprobs=2),
    "warm": SamplingParams(temperature=0.8, seed=1, logprobs=0),
    "nucleus": SamplingParams(temperature=1.0, top_p=0.9, top_k=50, seed=2),
    "hot": SamplingParams(temperature=1.5, min_p=0.02, seed=3, logit_bias={5: 2.0}),
    "penalties": SamplingParams(
        temperature=0.7,
        repetition_penalty=1.3,
        presence_penalty=0.4,
        frequency_penalty=0.2,
        seed=4,
        logprobs=3,
    ),
    "greedy penalties": SamplingParams(repetition_penalty=1.2, frequency_penalty=0.1),
}
NUM_DRAFTS = (1, 3, 8, 16, 64)


def with_tokens(params: SamplingParams, max_tokens: int) -> SamplingParams:
    return replace(params, max_tokens=max_tokens, ignore_eos=True)


@cache
def golden(name: str):
    return load_golden(name, kv_type="f16")


@cache
def plain_golden(name: str, setting: str):
    tokens = golden_arrays(name)["tokens"].tolist()
    # Its end stood there before: n-grams propose at once.
    return run(golden(name), tokens[:16] + tokens[4:11], with_tokens(SETTINGS[setting], 150))


def tokens_for(num_draft: int) -> int:
    """Enough tokens for windows of every outcome."""
    return min(150, 30 + 12 * num_draft)


@pytest.mark.parametrize("num_draft", NUM_DRAFTS)
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("drafter", ["scripted", "ngram"])
@pytest.mark.parametrize("name", GOLDENS)
def test_golden_models(name, drafter, setting, num_draft):
    llm = golden(name)
    whole = plain_golden(name, setting)
    cell = Cell(setting, drafter, num_draft)
    for seed in range(20):
        count = tokens_for(num_draft)
        params = with_tokens(SETTINGS[setting], count)
        plain = run(llm, whole.prompt_token_ids, params)
        assert plain.token_ids == whole.token_ids[:count]
        same(run_mixed(llm, whole, params, cell, seed), plain)
        if cell.covered:
            return
    pytest.fail(f"never seen: {cell.missed}: {cell}")


@pytest.mark.parametrize("setting", ["greedy", "warm"])
@pytest.mark.parametrize("drafter", ["scripted", "ngram"])
@pytest.mark.parametrize("name", GOLDENS)
def test_an_end_token_in_the_middle(name, drafter, setting):
    llm, whole = golden(name), plain_golden(name, setting)
    end = end_id(whole.token_ids[:60])
    params = replace(with_tokens(SETTINGS[setting], 150), stop_token_ids=(end,))
    plain = run(llm, whole.prompt_token_ids, params)
    length = whole.token_ids.index(end) + 1
    assert (plain.token_ids, plain.finish_reason) == (whole.token_ids[:length], "stop")
    for num_draft in (1, 3, 16):
        for seed in range(4):
            cell = Cell(setting, drafter, num_draft)
            same(run_mixed(llm, whole, params, cell, seed), plain)


def run_mixed(llm, whole, params, cell, seed):
    """The cell's drafter and K; drafts that are right go on behind an end."""
    drafts = speculator(
        cell.drafter, whole.prompt_token_ids + whole.token_ids, llm.target.vocab_size, seed
    )
    got = run(llm, whole.prompt_token_ids, params, drafts, cell.num_draft, cell.count)
    cell.num_inner += drafts.num_inner
    return got


def speculator(drafter: str, truth: list[int], vocab_size: int, seed: int) -> MixedDrafts:
    inner = NgramSpeculator() if drafter == "ngram" else None
    return MixedDrafts(truth, vocab_size, seed, inner)


@cache
def smollm2():
    return specrt.load(real_model("smollm2-135m"), context=1024, spec="none", verbose=False)


@pytest.mark.real_model
@pytest.mark.parametrize("num_draft", [3, 16])
@pytest.mark.parametrize("setting", ["greedy", "warm", "penalties"])
def test_smollm2_over_the_prompts(setting, num_draft):
    llm = smollm2()
    params = with_tokens(SETTINGS[setting], 24)
    cell = Cell(setting, "ngram", num_draft)
    for number, prompt in enumerate(bench_prompts()):
        messages = prompt["messages"]
        if number % 6 == 0:  # an answer has begun before: n-grams propose at once
            messages = [*messages, {"role": "assistant", "content": "It is so."}, messages[-1]]
        ids = chat_ids(llm.tokenizer, llm.chat_template, messages)
        plain = run(llm, ids, params)
        drafter = speculator("ngram", ids + plain.token_ids, llm.target.vocab_size, number)
        same(run(llm, ids, params, drafter, num_draft, cell.count), plain)
        cell.num_inner += drafter.num_inner
    assert cell.covered, cell


@pytest.mark.real_model
def test_smollm2_with_what_users_switch_on():
    llm = smollm2()
    params = with_tokens(SETTINGS["greedy"], 40)
    drafted = 0
    for prompt in bench_prompts()[6:9]:
        plain = llm.chat(prompt["messages"], params)
        for spec in ("auto", "ngram", SpecOptions(type="ngram", num_draft=64, governor=False)):
            got = llm.chat(prompt["messages"], params, spec=spec)
            same(got, plain)
            drafted += got.stats.num_drafted
    assert drafted > 100


@cache
def gemma3():
    return specrt.load(real_model("gemma3-270m"), context=2048, spec="none", verbose=False)


@cache
def plain_gemma3(setting: str) -> list:
    """Texts whose answers pass the window's length, lie past it, and pass the ring's length.

    Behind the last, a sliding layer's pages are used a second time.
    """
    llm = gemma3()
    layout = llm.target.layout
    contents = [message["content"] for p in bench_prompts() for message in p["messages"]]
    ids = llm.tokenizer.encode("\n\n".join(contents))
    params = with_tokens(SETTINGS[setting], 48)
    ends = (layout.window + 10, layout.window + 150, layout.ring_pages * PAGE + 20)
    assert max(ends) < len(ids) and layout.ring_pages < layout.pages
    return [run(llm, ids[: end - 36], params) for end in ends]


@pytest.mark.real_model
@pytest.mark.parametrize("num_draft", [3, 16])
@pytest.mark.parametrize("setting", ["greedy", "warm"])
def test_gemma3_past_the_ends_of_its_window_and_its_ring(setting, num_draft):
    llm, params = gemma3(), with_tokens(SETTINGS[setting], 48)
    cell = Cell(setting, "both", num_draft)
    # At the two lengths drafts must be rejected too, and n-grams are nearly always right here.
    for plain, kind in zip(plain_gemma3(setting), ("scripted", "ngram", "scripted"), strict=True):
        ids = plain.prompt_token_ids
        drafter = speculator(kind, ids + plain.token_ids, llm.target.vocab_size, len(ids))
        got = run(llm, ids, params, drafter, num_draft, cell.count)
        same(got, plain)
        cell.num_inner += drafter.num_inner
        if kind == "scripted":
            assert 0 < got.stats.num_accepted < got.stats.num_drafted
    assert cell.covered, cell
