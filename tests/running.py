"""Run a prompt with a speculator of the test's choice, and compare with plain decoding."""

from __future__ import annotations

from collections.abc import Callable

from specrt import SamplingParams
from specrt.completion import Completion
from specrt.llm import LLM
from specrt.lossless import fixed_request, run_to_the_end
from specrt.speculative.speculator import Speculator


def run(
    llm: LLM,
    ids: list[int],
    params: SamplingParams,
    speculator: Speculator | None = None,
    num_draft: int = 8,
    count: Callable[[int, int], None] | None = None,
) -> Completion:
    """Complete a prompt; ``count`` hears K and m of every window with a draft."""
    speculators = () if speculator is None else (speculator,)
    request = fixed_request(llm, ids, params, speculators, num_draft)
    return run_to_the_end(llm, request, count)


def same(got: Completion, plain: Completion) -> None:
    """The law: nothing but speed may differ."""
    assert got.token_ids == plain.token_ids
    assert got.text == plain.text
    assert got.finish_reason == plain.finish_reason
    assert got.logprobs == plain.logprobs
    assert got.stats.emitted == plain.stats.emitted
