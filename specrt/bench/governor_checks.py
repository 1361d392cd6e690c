"""The measurements behind the governor's bounds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace

import numpy as np

from specrt.bench.costs import replay_costs, row_seconds, steps_seconds
from specrt.bench.pairs import Pair, pairs, run
from specrt.bench.prompts import Prompt
from specrt.bench.scripted import ForcedRuntime, WrongSpeculator
from specrt.bench.summary import merged
from specrt.bench.timing import Spread
from specrt.completion import Completion
from specrt.llm import LLM
from specrt.options import SamplingParams, SpecOptions
from specrt.speculative.algorithms.ngram import NgramSpeculator
from specrt.speculative.governor import Governor
from specrt.speculative.simulator import Costs, best_fixed, record, replay

MOST_ROWS = 17
PROSE_TOKENS = 256
COPIED_TOKENS = 128


@dataclass(frozen=True, slots=True)
class Curve:
    """Milliseconds of a verify of 1, 2 .. rows behind ``cached`` tokens."""

    cached: int
    milliseconds: list[float]


@dataclass(frozen=True, slots=True)
class Replayed:
    """A finished text, replayed over the measured costs.

    Args:
        hits: share of the places where n-gram proposes.
        most_draft: the largest K that either may take.
        best_num_draft: the fixed K from 0 on that is fastest.
        share: its time over the governor's.
    """

    prompt: str
    tokens: int
    hits: float
    most_draft: int
    best_num_draft: int
    best_ms: float
    adaptive_ms: float
    share: float


@dataclass(frozen=True, slots=True)
class Adversarial:
    """A drafter that is always wrong under the governor, over plain."""

    prompt: str
    tokens: int
    ratio: Spread
    num_draft_counts: dict[int, int]


@dataclass(frozen=True, slots=True)
class Predicted:
    """n-gram from end to end, beside what its steps should take.

    Args:
        ratio: measured, over plain.
        predicted_ratio: of plain rows' cost to the steps' cost.
        share: measured ratio over the predicted one, pair by pair: the machine's speed at the time
            of the pair and of the measurement of rows cancels.
    """

    prompt: str
    tokens: int
    ratio: Spread
    predicted_ratio: float
    tokens_per_second: float
    predicted_tokens_per_second: float
    share: Spread
    acceptance_length: float
    num_draft_counts: dict[int, int]


@dataclass(frozen=True, slots=True)
class Reaction:
    """A text that turns from prose to copying.

    Args:
        first_hit: tokens into the copy where n-gram first proposes what follows.
        tokens: from there to the first step with K >= 2.
    """

    prompt: str
    prose: int
    first_hit: int
    tokens: int


def measure_curve(llm: LLM, most: int, cached: int, rounds: int) -> tuple[Curve, Costs]:
    """What 1 .. ``most`` rows cost, as shown and as replayed."""
    seconds = row_seconds(llm, most, cached, rounds)
    return Curve(cached, (seconds * 1e3).tolist()), replay_costs(seconds)


def plain_answer(llm: LLM, prompt: Prompt, params: SamplingParams) -> Completion:
    """Without speculation."""
    with closing(llm.session()) as session:
        session.messages = list(prompt.messages[:-1])
        return run(session, prompt.messages[-1]["content"], params, "none").completion


def replayed(prompt: Prompt, answer: Completion, costs: Costs, most_draft: int) -> Replayed:
    """The governor against every fixed K."""
    prompt_ids = answer.prompt_token_ids
    trace = record(prompt_ids + answer.token_ids, len(prompt_ids), NgramSpeculator)
    best, fixed = best_fixed(trace, costs, most_draft)
    adaptive = replay(trace, Governor().policy(), costs, most_draft, measure=True).seconds
    return Replayed(
        prompt=prompt.id,
        tokens=len(answer.token_ids),
        hits=float((trace.proposed > 0).mean()),
        most_draft=most_draft,
        best_num_draft=best,
        best_ms=fixed * 1e3,
        adaptive_ms=adaptive * 1e3,
        share=fixed / adaptive,
    )


def adversarial(
    llm: LLM,
    wrong: WrongSpeculator,
    prompt: Prompt,
    answer: Completion,
    params: SamplingParams,
    rounds: int,
) -> Adversarial:
    """Interleaved pairs, the drafter wrong at every token."""
    wrong.text = answer.prompt_token_ids + answer.token_ids
    measured = list(pairs(llm, prompt, params, _spec(llm, wrong.name), rounds))
    stats = merged([pair.spec.completion.stats for pair in measured])
    ratio = Spread.of([pair.ratio for pair in measured])
    return Adversarial(prompt.id, len(answer.token_ids), ratio, stats.num_draft_counts)


def predicted(
    llm: LLM, prompt: Prompt, answer: Completion, params: SamplingParams, rounds: int
) -> Predicted:
    """Interleaved pairs between two measurements of what rows cost in the middle of the text."""
    middle = len(answer.prompt_token_ids) + len(answer.token_ids) // 2
    most = max(MOST_ROWS, llm.speculation.resolve(_spec(llm, "ngram")).num_draft + 1)
    before = row_seconds(llm, most, middle, rounds)
    measured = list(pairs(llm, prompt, params, _spec(llm, "ngram"), rounds))
    after = row_seconds(llm, most, middle, rounds)
    costs = replay_costs((before + after) / 2).verify
    stats = merged([pair.spec.completion.stats for pair in measured])
    seconds = [steps_seconds(pair.spec.completion.stats, costs) for pair in measured]
    speeds = [pair.spec.tokens_per_second for pair in measured]
    return Predicted(
        prompt=prompt.id,
        tokens=len(answer.token_ids),
        ratio=Spread.of([pair.ratio for pair in measured]),
        predicted_ratio=stats.emitted * float(costs[0]) / sum(seconds),
        tokens_per_second=float(np.median(speeds)),
        predicted_tokens_per_second=stats.emitted / sum(seconds),
        share=Spread.of([_share(pair, costs) for pair in measured]),
        acceptance_length=stats.acceptance_length,
        num_draft_counts=stats.num_draft_counts,
    )


def reaction(llm: LLM, prompt: Prompt, answer: Completion, source: list[int]) -> Reaction:
    """Steps at the model's true cost over a text that was prose and then copies its prompt.

    Args:
        answer: its beginning is the prose.
        source: ids of the prompt; what is copied is from its middle.
    """
    prose = answer.token_ids[:PROSE_TOKENS]
    start = max(0, (len(source) - COPIED_TOKENS) // 2)
    text = source + prose + source[start : start + COPIED_TOKENS]
    copy_at = len(prose)
    matched = record(text, len(source), NgramSpeculator).matched[copy_at:]
    hit = int(np.argmax(matched > 0))
    steps = list(forced_steps(llm, text, len(source), _spec(llm, "ngram")))
    late = len(text) - len(source) - copy_at - hit
    found = [at - copy_at - hit for at, num_draft in steps if num_draft >= 2]
    return Reaction(prompt.id, copy_at, hit, min((n for n in found if n >= 0), default=late))


def forced_steps(
    llm: LLM, text: list[int], prompt_len: int, spec: SpecOptions
) -> Iterator[tuple[int, int]]:
    """Emitted ids before each step of a given text, and the step's K."""
    sequence = llm.target.open_sequence()
    try:
        params = SamplingParams(max_tokens=len(text) - prompt_len, ignore_eos=True)
        request = llm.generator.request(sequence, text[:prompt_len], params, spec)
        runtime = ForcedRuntime(llm.target, text)
        runtime.prefill(request)
        while sequence.cursor.finish_reason is None:
            at, drafted = sequence.num_generated, request.stats.num_drafted
            runtime.step([request])
            yield at, request.stats.num_drafted - drafted
    finally:
        llm.target.close_sequence(sequence)


def _spec(llm: LLM, name: str) -> SpecOptions:
    """As the model was loaded, with this drafter under the governor."""
    return replace(llm.generator.spec, type=name, governor=True)


def _share(pair: Pair, costs: np.ndarray) -> float:
    tokens = len(pair.spec.completion.token_ids)
    return (
        pair.ratio * steps_seconds(pair.spec.completion.stats, costs) / (tokens * float(costs[0]))
    )
