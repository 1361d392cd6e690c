"""From answers to what is shown and saved of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.peers.engine import PLAIN, PREFILL, Answer
from benchmarks.peers.measure import Contestant, Sample
from specrt.bench.report import degenerate
from specrt.bench.timing import Spread, WrongResultError

Rates = Mapping[Contestant, Mapping[str, Mapping[int, float]]]
"""Tokens per second by contestant, prompt and round."""


@dataclass(frozen=True, slots=True)
class Result:
    """A contestant on a prompt, over all rounds.

    Args:
        tokens_per_second: of decoding, or of prefill for its prompts; None if no answer went past
            its first forward.
        ms_per_step: median, of a forward after the first.
        tokens_per_verify: ids per forward after the first.
        acceptance_rate: sum m / sum K; None if nothing was drafted or the engine does not tell.
        prefill_ms: median, of the prompt.
        tells_ids: False for engines that tell text alone; their answers are not compared.
        differs_at: the first id in which its answer is another than specrt's plain one, None if
            it is the same in every round.
        degenerate: the last 64 ids are one cycle.
    """

    engine: str
    mode: str
    prompt: str
    category: str
    samples: int
    prompt_tokens: int
    tokens: int
    tokens_per_second: Spread | None
    ms_per_step: float | None
    tokens_per_verify: float
    acceptance_rate: float | None
    prefill_ms: float
    tells_ids: bool
    differs_at: int | None
    degenerate: bool


def summarise(samples: Sequence[Sample], own: str) -> list[Result]:
    """One result per prompt and contestant, in the order in which the first round met them.

    Args:
        own: the engine whose plain answers the others are compared with.
    """
    groups: dict[tuple[str, Contestant], list[Sample]] = {}
    for sample in samples:
        groups.setdefault((sample.prompt, sample.contestant), []).append(sample)
    prompts = dict.fromkeys(sample.prompt for sample in samples)
    contestants = dict.fromkeys(sample.contestant for sample in samples)
    keys = [(prompt, one) for prompt in prompts for one in contestants if (prompt, one) in groups]
    return [_result(groups[key], groups.get((key[0], Contestant(own, PLAIN)))) for key in keys]


def lossless(samples: Iterable[Sample], own: str) -> Iterator[Sample]:
    """The same samples, as long as our answers to a prompt are the same in all modes and rounds.

    Raises:
        WrongResultError: one is another than our first one to that prompt.
    """
    firsts: dict[str, Sample] = {}
    for sample in samples:
        if sample.contestant.engine == own and sample.contestant.mode != PREFILL:
            first = firsts.setdefault(sample.prompt, sample)
            place = _first_difference(sample.answer, first.answer)
            if place is not None:
                raise WrongResultError(
                    f"{sample.prompt}: {sample.contestant.label} of round {sample.round + 1} "
                    f"differs at {place} from {first.contestant.label} of round {first.round + 1}"
                )
        yield sample


def comparable(samples: Sequence[Sample], own: str) -> list[Sample]:
    """Without prompts that an early end left without our plain answer: were the others right?"""
    plain = {s.prompt for s in samples if s.contestant == Contestant(own, PLAIN)}
    return [s for s in samples if s.contestant.mode == PREFILL or s.prompt in plain]


def rates(samples: Iterable[Sample]) -> Rates:
    """Tokens per second of every sample that has some; of prefill for those of prefill."""
    found: dict[Contestant, dict[str, dict[int, float]]] = {}
    for sample in samples:
        rate = _rate(sample)
        if rate is not None:
            by_prompt = found.setdefault(sample.contestant, {})
            by_prompt.setdefault(sample.prompt, {})[sample.round] = rate
    return found


def pair_ratios(rates: Rates, one: Contestant, other: Contestant) -> dict[str, float]:
    """How many times as fast: by prompt, the median over rounds of the rounds' own ratios."""
    found = {prompt: _pair_ratio(rates, one, other, prompt) for prompt in rates.get(one, {})}
    return {prompt: ratio for prompt, ratio in found.items() if ratio is not None}


def best_modes(rates: Rates, engine: str) -> dict[str, Contestant]:
    """By prompt, the engine's speculation with the highest median tokens per second."""
    best: dict[str, tuple[float, Contestant]] = {}
    for one, by_prompt in rates.items():
        if one.engine != engine or one.mode in (PLAIN, PREFILL):
            continue
        for prompt, by_round in by_prompt.items():
            found = (float(np.median(list(by_round.values()))), one)
            best[prompt] = max(best.get(prompt, found), found, key=lambda pair: pair[0])
    return {prompt: one for prompt, (_, one) in best.items()}


def speculative_ratios(rates: Rates, own: str, peer: str) -> dict[str, float]:
    """The own best speculation over the peer's best, by prompt; the best is chosen afterwards."""
    mine, theirs = best_modes(rates, own), best_modes(rates, peer)
    found = {p: _pair_ratio(rates, mine[p], theirs[p], p) for p in mine if p in theirs}
    return {prompt: ratio for prompt, ratio in found.items() if ratio is not None}


def run_spread(rates: Rates, one: Contestant) -> float | None:
    """Run-to-run spread: interquartile range over median, prompts brought to one median first.

    None with a single round.
    """
    scaled: list[float] = []
    for by_round in rates.get(one, {}).values():
        values = list(by_round.values())
        if len(values) > 1:
            scaled += [value / float(np.median(values)) for value in values]
    if not scaled:
        return None
    low, middle, high = np.quantile(scaled, [0.25, 0.5, 0.75])
    return float((high - low) / middle)


def geometric_mean(values: Iterable[float]) -> float:
    """Of at least one number above 0."""
    return float(np.exp(np.mean(np.log(list(values)))))


def _pair_ratio(rates: Rates, one: Contestant, other: Contestant, prompt: str) -> float | None:
    mine, theirs = (rates.get(who, {}).get(prompt, {}) for who in (one, other))
    pairs = [mine[n] / theirs[n] for n in mine if n in theirs]
    return float(np.median(pairs)) if pairs else None


def _rate(sample: Sample) -> float | None:
    if sample.contestant.mode == PREFILL:
        return sample.answer.prefill_tokens_per_second
    return sample.answer.tokens_per_second


def _result(group: list[Sample], plain: list[Sample] | None) -> Result:
    first, answers = group[0], [sample.answer for sample in group]
    speeds = [rate for rate in map(_rate, group) if rate is not None]
    steps = [ms for ms in (answer.ms_per_step for answer in answers) if ms is not None]
    num_steps = sum(answer.steps for answer in answers)
    later = sum(answer.num_tokens - answer.first_tokens for answer in answers)
    found = [_first_difference(answer, plain[0].answer) for answer in answers] if plain else []
    differences = [place for place in found if place is not None]
    return Result(
        engine=first.contestant.engine,
        mode=first.contestant.mode,
        prompt=first.prompt,
        category=first.category,
        samples=len(group),
        prompt_tokens=answers[0].prompt_tokens,
        tokens=answers[0].num_tokens,
        tokens_per_second=Spread.of(speeds) if speeds else None,
        ms_per_step=float(np.median(steps)) if steps else None,
        tokens_per_verify=later / num_steps if num_steps else 1.0,
        acceptance_rate=_acceptance(answers),
        prefill_ms=float(np.median([answer.prefill_ms for answer in answers])),
        tells_ids=answers[0].token_ids is not None,
        differs_at=min(differences, default=None),
        degenerate=degenerate(answers[0].token_ids or []),
    )


def _acceptance(answers: Sequence[Answer]) -> float | None:
    drafted = [answer.num_drafted for answer in answers if answer.num_drafted is not None]
    if len(drafted) < len(answers) or not sum(drafted):
        return None
    return sum(answer.num_accepted for answer in answers) / sum(drafted)


def _first_difference(answer: Answer, plain: Answer) -> int | None:
    mine, theirs = answer.token_ids, plain.token_ids
    if mine is None or theirs is None or mine == theirs:
        return None
    equal = [a == b for a, b in zip(mine, theirs, strict=False)]
    return equal.index(False) if False in equal else len(equal)
