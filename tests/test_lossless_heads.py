"""The law with draft heads: over turns, beside another sequence, and as users ask for it."""

from dataclasses import replace
from functools import cache

import pytest

from specrt import SamplingParams, SpecOptions
from specrt.completion import completion
from specrt.lossless import Cell, fixed_request
from specrt.mixed_drafts import MixedDrafts
from tests.models_on_disk import DRAFTER_GOLDENS, HEAD_GOLDENS, golden_arrays, load_golden
from tests.running import same

SETTINGS = {
    "greedy": SamplingParams(max_tokens=60, ignore_eos=True, logprobs=1),
    "sampled": SamplingParams(max_tokens=60, ignore_eos=True, temperature=0.9, top_p=0.95, seed=3),
}
PAIRS = [
    (name, kind) for name in HEAD_GOLDENS for kind in ("ngram", "draft-head", "ngram,draft-head")
]
PAIRS += [(name, kind) for name in DRAFTER_GOLDENS for kind in ("block", "ngram,block")]
"""Models with heads of their own, or drafters in files of their own; and who drafts."""


@cache
def model(name, device="cpu"):
    options = {"kv_type": "f16", "device": device, "context": 512}
    if name in DRAFTER_GOLDENS:
        return load_golden(DRAFTER_GOLDENS[name], drafter=name, **options)
    return load_golden(name, **options)


@cache
def turns(name, setting, device="cpu"):
    """Three turns of plain decoding: each prompt is what was said, and some more."""
    name = DRAFTER_GOLDENS.get(name, name)
    tokens = golden_arrays(name)["tokens"].tolist()
    with model(name, device).session() as session:
        said, answers = tokens[:20] + tokens[4:11], []
        for turn in range(3):
            params = replace(SETTINGS[setting], max_tokens=60 if device == "cpu" else 12)
            answers.append(session.generate(said, params, spec="none"))
            said = said + answers[-1].token_ids + tokens[turn : turn + 5]
        return answers


def speculators(llm, drafter):
    return llm.speculation.resolve(SpecOptions(type=drafter, pmin=0.0)).speculators


def stepped(llm, requests, cell=None):
    """Run requests side by side to their ends."""
    for request in requests:
        llm.generator.runtime.prefill(request)
    while running := [r for r in requests if r.sequence.cursor.finish_reason is None]:
        before = [r.stats.num_drafted for r in running]
        for r, old, got in zip(running, before, llm.generator.runtime.step(running), strict=True):
            if cell is not None and r.stats.num_drafted > old:
                cell.count(r.stats.num_drafted - old, got.num_accepted)
    return [completion(request) for request in requests]


def mixed(llm, plain, drafter, seed):
    """The last one's drafts are mixed; who stands before it in a chain drafts by itself."""
    truth = plain.prompt_token_ids + plain.token_ids
    *others, last = speculators(llm, drafter)
    return [*others, MixedDrafts(truth, llm.target.vocab_size, seed, last)]


def over_turns(llm, name, setting, cell, seed, device="cpu"):
    """One sequence through all turns, each with drafts that are right for a while."""
    sequence = llm.target.open_sequence()
    for plain in turns(name, setting, device):
        drafts = mixed(llm, plain, cell.drafter, seed)
        params = replace(SETTINGS[setting], max_tokens=len(plain.token_ids))
        request = llm.generator.request(sequence, plain.prompt_token_ids, params, None)
        fixed = fixed_request(llm, plain.prompt_token_ids, params, tuple(drafts), cell.num_draft)
        llm.target.close_sequence(fixed.sequence)
        request.speculators, request.policy = fixed.speculators, fixed.policy
        request.max_draft = fixed.max_draft
        (got,) = stepped(llm, [request], cell)
        same(got, plain)
        cell.num_inner += drafts[-1].num_inner
    llm.target.close_sequence(sequence)


@pytest.mark.parametrize("num_draft", [1, 2, 3, 7])
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize(("name", "drafter"), PAIRS)
def test_turns(name, drafter, setting, num_draft):
    cell = Cell(setting, drafter, num_draft)
    for seed in range(6):
        over_turns(model(name), name, setting, cell, seed)
        if cell.covered:
            return
    pytest.fail(f"never seen: {cell.missed}: {cell}")


@pytest.mark.parametrize(
    ("name", "drafter", "setting"),
    [("qwen35-accept", "draft-head", one) for one in SETTINGS]
    + [("dflash2-qwen35", "block", "sampled")],
)
def test_turns_on_the_emulator(name, drafter, setting):
    cell = Cell(setting, drafter, 3)
    over_turns(model(name, "emulator"), name, setting, cell, 1, "emulator")
    assert cell.windows > 4 and cell.num_inner


@pytest.mark.parametrize("num_draft", [1, 2, 3, 7])
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize(("name", "drafter"), PAIRS)
def test_as_users_ask_for_it(name, drafter, setting, num_draft):
    """Sessions of three turns, with nothing mixed in; the governor on and off."""
    llm = model(name)
    for governor in (False, True):
        spec = SpecOptions(type=drafter, num_draft=num_draft, pmin=0.0, governor=governor)
        with llm.session() as session:
            for plain in turns(name, setting):
                got = session.generate(plain.prompt_token_ids, SETTINGS[setting], spec=spec)
                same(got, plain)
                assert got.stats.speculator == drafter and not got.stats.declined
                assert got.stats.num_drafted or governor or drafter == "ngram"


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("name", [*HEAD_GOLDENS, *DRAFTER_GOLDENS])
def test_two_sequences_side_by_side(name, setting):
    """Of different lengths, and with different K."""
    drafter = "block" if name in DRAFTER_GOLDENS else "draft-head"
    llm, cell = model(name), Cell(setting, drafter, 3)
    plains = turns(name, setting)[::2]
    for seed in range(4):
        requests = [
            fixed_request(
                llm,
                plain.prompt_token_ids,
                SETTINGS[setting],
                tuple(mixed(llm, plain, drafter, seed)),
                num_draft,
            )
            for plain, num_draft in zip(plains, (3, 5), strict=True)
        ]
        for got, plain in zip(stepped(llm, requests, cell), plains, strict=True):
            same(got, plain)
        for request in requests:
            llm.target.close_sequence(request.sequence)
    assert not [outcome for outcome in cell.missed if "m" in outcome]
