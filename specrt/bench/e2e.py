"""End to end: plain and speculative decoding of the same prompts, in turn, in one process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field

from specrt.bench.cases import FOLLOW_UPS, NUM_PAIRS, NUM_TOKENS, Prompt
from specrt.bench.timing import Spread, WrongResultError, interleaved, is_degenerate, ratios
from specrt.generate import Completion
from specrt.llm import LLM
from specrt.options import SamplingParams, SpecOptions
from specrt.session import Session
from specrt.stats import Stats


@dataclass(frozen=True, slots=True)
class Options:
    """How to measure.

    Args:
        tokens: of an answer.
        pairs: plain and speculative runs of every prompt.
        turns: of every conversation.
        ignore_eos: answers go on behind an end token.
    """

    tokens: int = NUM_TOKENS
    pairs: int = NUM_PAIRS
    turns: int = 1
    ignore_eos: bool = False

    @property
    def params(self) -> SamplingParams:
        """Greedy."""
        return SamplingParams(max_tokens=self.tokens, ignore_eos=self.ignore_eos)


@dataclass(slots=True)
class Turn:
    """One answer.

    Args:
        completion: what came.
        seconds: of everything but the target's prefill.
    """

    completion: Completion
    seconds: float


@dataclass(slots=True)
class Row:
    """One turn of one prompt over all pairs.

    Args:
        name, category: of the prompt; a later turn's name ends with its number.
        tokens: of the answer.
        plain_tps, spec_tps: tokens per second.
        ratio: of speculative to plain decoding.
        plain_ttft, spec_ttft: milliseconds to the first token.
        acceptance_rate, acceptance_length: of the last run.
        accepted_at: share of d1, d2 .. that was accepted where it was reached.
        num_draft_counts: steps by K, of the last run.
        plain_ms, spec_ms: milliseconds per step and phase.
        degenerate: the answer ends in a cycle, so its acceptance says little.
    """

    name: str
    category: str
    tokens: int
    speculator: str | None
    plain_tps: Spread
    spec_tps: Spread
    ratio: Spread
    plain_ttft: float
    spec_ttft: float
    acceptance_rate: float
    acceptance_length: float
    accepted_at: list[float]
    num_draft_counts: dict[int, int]
    plain_ms: dict[str, float]
    spec_ms: dict[str, float]
    degenerate: bool
    declined: list[str] = field(default_factory=list)

    def as_json(self) -> dict:
        """Plain values."""
        return asdict(self)


def warm_up(llm: LLM, prompt: Prompt, spec: SpecOptions) -> None:
    """Let every program of a short answer be recorded, and memory be touched."""
    for options in ("none", spec):
        llm.chat(
            prompt.messages, SamplingParams(max_tokens=48), spec=options, enable_thinking=False
        )


def measure(llm: LLM, prompt: Prompt, spec: SpecOptions, options: Options) -> Iterator[Row]:
    """The rows of one prompt.

    Raises:
        WrongResultError: speculative decoding gave other ids than plain decoding.
    """
    plain: list[list[Turn]] = []
    speculative: list[list[Turn]] = []

    def runner(runs: list[list[Turn]], how: SpecOptions) -> Callable[[], None]:
        return lambda: runs.append(conversation(llm, prompt, how, options))

    interleaved(runner(plain, SpecOptions("none")), runner(speculative, spec), options.pairs)
    for turn in range(options.turns):
        name = prompt.id if turn == 0 else f"{prompt.id} #{turn + 1}"
        yield row(
            name, prompt.category, [run[turn] for run in plain], [run[turn] for run in speculative]
        )


def conversation(llm: LLM, prompt: Prompt, spec: SpecOptions, options: Options) -> list[Turn]:
    """One session: the prompt, then follow-ups."""
    said = [prompt.messages[-1]["content"]]
    said += [FOLLOW_UPS[i % len(FOLLOW_UPS)] for i in range(options.turns - 1)]
    with llm.session() as session:
        session.messages = list(prompt.messages[:-1])
        return [_timed(session, content, spec, options) for content in said]


def _timed(session: Session, content: str, spec: SpecOptions, options: Options) -> Turn:
    start = time.perf_counter()
    completion = session.send(content, options.params, spec=spec, enable_thinking=False)
    seconds = time.perf_counter() - start - completion.stats.phases.prefill / 1e3
    return Turn(completion, seconds)


def row(name: str, category: str, plain: list[Turn], speculative: list[Turn]) -> Row:
    """Compare the runs of one turn.

    Raises:
        WrongResultError: ids differ.
    """
    ids = plain[0].completion.token_ids
    for run in (*plain, *speculative):
        check_ids(name, run.completion.token_ids, ids)
    stats = speculative[-1].completion.stats
    return Row(
        name=name,
        category=category,
        tokens=len(ids),
        speculator=stats.speculator,
        plain_tps=Spread.of([len(ids) / run.seconds for run in plain]),
        spec_tps=Spread.of([len(ids) / run.seconds for run in speculative]),
        ratio=ratios([run.seconds for run in plain], [run.seconds for run in speculative]),
        plain_ttft=_first_token(plain),
        spec_ttft=_first_token(speculative),
        acceptance_rate=stats.acceptance_rate,
        acceptance_length=stats.acceptance_length,
        accepted_at=[a / d for a, d in zip(stats.accepted_at, stats.drafted_at, strict=True)],
        num_draft_counts=dict(sorted(stats.num_draft_counts.items())),
        plain_ms=milliseconds(plain[-1].completion.stats),
        spec_ms=milliseconds(stats),
        degenerate=is_degenerate(ids),
        declined=stats.declined,
    )


def check_ids(name: str, got: list[int], expected: list[int]) -> None:
    """Compare the ids of two runs.

    Raises:
        WrongResultError: they differ.
    """
    if got == expected:
        return
    pairs = zip(got, expected, strict=False)
    place = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(got), len(expected)))
    raise WrongResultError(
        f"{name}: token {place} of {len(got)} differs from plain decoding's {len(expected)}: "
        "expected the same ids; no time is reported for a wrong result"
    )


def _first_token(runs: list[Turn]) -> float:
    return Spread.of([run.completion.stats.time_to_first_token or 0.0 for run in runs]).median


def milliseconds(stats: Stats) -> dict[str, float]:
    """Milliseconds by phase: prefill and catch-up in all, the others per step that has them."""
    plain_steps = stats.steps - stats.draft_steps
    phases = stats.phases
    per_step = {
        "plain": phases.plain / plain_steps if plain_steps else 0.0,
        "verify": phases.verify / stats.draft_steps if stats.draft_steps else 0.0,
    }
    for phase in ("draft", "accept", "rollback", "commit"):
        per_step[phase] = getattr(phases, phase) / stats.steps if stats.steps else 0.0
    return {"prefill": phases.prefill, "catch_up": phases.catch_up, **per_step}
