"""Run a prompt with a speculator of the test's choice."""

from __future__ import annotations

from dataclasses import dataclass

from specrt import SamplingParams
from specrt.generate import Completion, completion
from specrt.llm import LLM
from specrt.speculative.governor import FixedPolicy
from specrt.speculative.request import Request
from specrt.speculative.speculator import Speculator


@dataclass
class Histogram:
    """How many verified windows had which outcome."""

    none: int = 0
    partial: int = 0
    full: int = 0

    def count(self, num_draft: int, num_accepted: int) -> None:
        if num_accepted == num_draft:
            self.full += 1
        elif num_accepted:
            self.partial += 1
        else:
            self.none += 1


def make_request(
    llm: LLM,
    ids: list[int],
    params: SamplingParams,
    speculator: Speculator | None = None,
    num_draft: int = 8,
) -> Request:
    """A request in a new sequence."""
    request = llm.generator.request(llm.target.open_sequence(), ids, params, "none")
    request.speculator = speculator
    request.policy = FixedPolicy(num_draft)
    request.max_draft = num_draft
    return request


def run(
    llm: LLM,
    ids: list[int],
    params: SamplingParams,
    speculator: Speculator | None = None,
    num_draft: int = 8,
    seen: Histogram | None = None,
) -> Completion:
    """Complete a prompt, and count the outcome of every whole window of K."""
    request = make_request(llm, ids, params, speculator, num_draft)
    try:
        if request.speculator is not None:
            request.speculator.reset(request.sequence)
        llm.generator.runtime.prefill(request)
        while request.sequence.cursor.finish_reason is None:
            before = request.stats.num_drafted
            (acceptance,) = llm.generator.runtime.step([request])
            drafted = request.stats.num_drafted - before
            if seen is not None and drafted == num_draft:
                seen.count(drafted, acceptance.num_accepted)
        return completion(request)
    finally:
        llm.target.close_sequence(request.sequence)


def same(got: Completion, plain: Completion) -> None:
    """The law: nothing but speed may differ."""
    assert got.token_ids == plain.token_ids
    assert got.text == plain.text
    assert got.finish_reason == plain.finish_reason
    assert got.logprobs == plain.logprobs
    assert got.stats.emitted == plain.stats.emitted
