"""End to end with one fixed K after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from specrt.bench.costs import warm_up
from specrt.bench.governor_checks import plain_answer
from specrt.bench.pairs import Pair, pairs
from specrt.bench.prompts import Prompt
from specrt.bench.report import number, show
from specrt.bench.scripted import SyntheticSpeculator
from specrt.bench.summary import Result, Totals, summarise, totals
from specrt.llm import LLM
from specrt.options import SamplingParams

NUM_DRAFTS = (1, 2, 3, 5, 8, 16)


@dataclass(frozen=True, slots=True)
class AtK:
    """A pair whose every step drafts ``num_draft`` tokens where the drafter has as many."""

    num_draft: int
    pair: Pair


@dataclass(frozen=True, slots=True)
class Swept:
    """All pairs of one K."""

    num_draft: int
    results: list[Result]
    totals: Totals


def measure(
    llm: LLM,
    prompts: Sequence[Prompt],
    params: SamplingParams,
    rounds: int,
    turns: int,
    num_drafts: Sequence[int],
    synthetic: SyntheticSpeculator | None,
) -> Iterator[AtK]:
    """Prompt by prompt every K, without the governor; before, all programs are recorded."""
    warm_up(llm, max(num_drafts) + 1)
    for prompt in prompts:
        if synthetic is not None:
            learn(synthetic, llm, prompt, params)
        for num_draft in num_drafts:
            spec = replace(llm.generator.spec, num_draft=num_draft, governor=False)
            for pair in pairs(llm, prompt, params, spec, rounds, turns):
                yield AtK(num_draft, pair)


def learn(synthetic: SyntheticSpeculator, llm: LLM, prompt: Prompt, params: SamplingParams) -> None:
    """Tell a synthetic drafter what the answer is."""
    answer = plain_answer(llm, prompt, params)
    synthetic.text = answer.prompt_token_ids + answer.token_ids


def swept(measured: Sequence[AtK]) -> list[Swept]:
    """By K, in the order of the first pairs."""
    found = []
    for num_draft in dict.fromkeys(one.num_draft for one in measured):
        same = [one.pair for one in measured if one.num_draft == num_draft]
        found.append(Swept(num_draft, summarise(same), totals(same)))
    return found


def show_swept(found: Sequence[Swept]) -> None:
    """All prompts together by K, then each prompt's tokens per second."""
    show(
        "Tokens per second by K, fixed; every speculative answer equals the plain one",
        ("K", "plain", "spec", "ratio", "mean ratio", "accepted", "length"),
        [
            (
                str(one.num_draft),
                number(one.totals.plain_tokens_per_second, 1),
                number(one.totals.spec_tokens_per_second, 1),
                number(one.totals.ratio),
                number(one.totals.mean_ratio),
                f"{one.totals.acceptance_rate:.0%}",
                number(one.totals.acceptance_length),
            )
            for one in found
        ],
    )
    labels = dict.fromkeys(result.label for one in found for result in one.results)
    cells = {
        (one.num_draft, result.label): result.spec.tokens_per_second.median
        for one in found
        for result in one.results
    }
    show(
        "Tokens per second by prompt",
        ("prompt", *(f"K={one.num_draft}" for one in found)),
        [
            (label, *(number(cells.get((one.num_draft, label)), 1) for one in found))
            for label in labels
        ],
    )
