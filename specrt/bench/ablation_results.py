"""Rounds of answers in several ways: equal first, timed second; and what each way is worth."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import cast

import numpy as np

from specrt.bench.ablation_variants import Model, Variant
from specrt.bench.ops_around import TimedOps
from specrt.bench.pairs import Run, answers
from specrt.bench.prompts import Prompt
from specrt.bench.report import Bound
from specrt.bench.summary import merged
from specrt.bench.timing import Spread, WrongResultError
from specrt.completion import Completion
from specrt.host import HostOps
from specrt.lossless import difference
from specrt.models.decoder import Decoder
from specrt.ops import Ops
from specrt.options import SamplingParams
from specrt.settings import MTP_FOLD_CATCHUP
from specrt.state.messages import Window
from specrt.stats import Stats

PUBLISHED_TOKENS = 256
"""That figures found elsewhere are of."""
RECURRENT_OPS = ("causal_conv", "gated_delta")
CACHED = 64
"""Tokens before the windows whose pending rows are timed."""
MOST_ROLLBACK, MOST_CATCH_UP = 0.01, 0.05
"""Of a step."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer in one way.

    Args:
        catch_up: seconds in which the head heard of kept rows, with what it did with them at once.
    """

    run: Run
    catch_up: float


Round = dict[str, list[Answer]]
"""An answer to every prompt in each way."""


@dataclass(frozen=True, slots=True)
class Worth:
    """What the default saves beside another way, round by round.

    Args:
        ms: of a step.
        share: of the default's step.
        ms_of_256_tokens: median.
        ratio: the default's tokens per second over the other way's.
    """

    ms: Spread
    share: Spread
    ms_of_256_tokens: float
    ratio: Spread


@dataclass(frozen=True, slots=True)
class Result:
    """One way over all rounds of all prompts.

    Args:
        tokens, steps: of a round.
        corrected: steps of a round that took rows back.
        acceptance_length: mean of m + 1 over the steps with a draft.
        step_ms: all of a step, one sample per round.
        phases_ms: of a step, medians; draft without what the head does as it hears of kept rows,
            forward is verify and plain.
        tokens_per_second: median.
        worth: of the default; None for itself.
    """

    name: str
    published: str
    tokens: int
    steps: int
    corrected: int
    acceptance_length: float
    step_ms: Spread
    phases_ms: dict[str, float]
    tokens_per_second: float
    worth: Worth | None


def measure(
    model: Model,
    variants: Sequence[Variant],
    prompts: Sequence[Prompt],
    params: SamplingParams,
    number: int,
) -> Iterator[Round]:
    """So many rounds, behind one in which programs are recorded.

    On each prompt all ways take turns, a few ids at a time, every other round in the other order.

    Raises:
        WrongResultError: a way gave other tokens than plain decoding, or took other steps.
    """
    ids = {prompt.id: model.ids(prompt) for prompt in prompts}
    plain = {name: variants[0].plain(own, params) for name, own in ids.items()}
    for place in range(-1, number):
        done: Round = {variant.name: [] for variant in variants}
        for name, answer in plain.items():
            with ExitStack() as stack:
                streams = {}
                for variant in variants[:: -1 if place % 2 else 1]:
                    variant.learn(answer)
                    variant.head.seconds = 0.0
                    stream = variant.stream(ids[name], params)
                    streams[variant.name] = stack.enter_context(stream)
                found = answers(streams)
            check(name, answer, found, variants[0].name)
            for variant in variants:
                done[variant.name].append(Answer(found[variant.name], variant.head.seconds))
        if place >= 0:
            yield done


def check(prompt: str, plain: Completion, found: Mapping[str, Run], default: str) -> None:
    """The law, before any time is told.

    Raises:
        WrongResultError: an answer is not plain decoding's, or its steps are not the default's.
    """
    for name, run in found.items():
        if (differs := difference(run.completion, plain)) is not None:
            raise WrongResultError(f"{prompt}, {name}: another answer than plain: {differs}")
    steps = {name: _steps(run) for name, run in found.items()}
    for name, own in steps.items():
        if own != steps[default]:
            raise WrongResultError(
                f"{prompt}, {name}: steps by K and by m {own}, by default {steps[default]}"
            )


def _steps(run: Run) -> tuple[list[tuple[int, int]], ...]:
    stats = run.completion.stats
    counts = stats.num_draft_counts, stats.num_accepted_counts
    return tuple(sorted(count.items()) for count in counts)


def results_of(variants: Sequence[Variant], rounds: Sequence[Round]) -> list[Result]:
    """One of each way, the default first; of at least one round."""
    default = _totals(rounds, variants[0])
    return [_result(variant, _totals(rounds, variant), default) for variant in variants]


@dataclass(frozen=True, slots=True)
class Total:
    """A round of one way.

    Args:
        stats: of all prompts.
        seconds: likewise, without prefill.
        catch_up: of them, those of ``Answer``.
    """

    stats: Stats
    seconds: float
    catch_up: float

    @classmethod
    def of(cls, found: Sequence[Answer]) -> Total:
        """The answers together."""
        stats = merged([one.run.completion.stats for one in found])
        seconds = sum(one.run.seconds for one in found)
        return cls(stats, seconds, sum(one.catch_up for one in found))

    @property
    def step_ms(self) -> float:
        """Milliseconds of a step, its mean."""
        return self.stats.decode_ms / self.stats.steps

    @property
    def tokens_per_second(self) -> float:
        """Emitted ids per second."""
        return self.stats.emitted / self.seconds

    @property
    def phases_ms(self) -> dict[str, float]:
        """Of a step."""
        phases, steps, catch_up = self.stats.phases, self.stats.steps, self.catch_up * 1e3
        named = {
            "draft": phases.draft + phases.commit - catch_up,
            "catch-up": catch_up,
            "forward": phases.verify + phases.plain,
            "rollback": phases.rollback,
        }
        return {name: ms / steps for name, ms in named.items()}


def _totals(rounds: Sequence[Round], variant: Variant) -> list[Total]:
    return [Total.of(one[variant.name]) for one in rounds]


def _result(variant: Variant, totals: Sequence[Total], default: Sequence[Total]) -> Result:
    stats = totals[0].stats  # every round takes the same steps
    return Result(
        name=variant.name,
        published=variant.published,
        tokens=stats.emitted,
        steps=stats.steps,
        corrected=stats.origins.count("corrected"),
        acceptance_length=stats.acceptance_length,
        step_ms=Spread.of([total.step_ms for total in totals]),
        phases_ms=_medians([total.phases_ms for total in totals]),
        tokens_per_second=float(np.median([total.tokens_per_second for total in totals])),
        worth=worth_of(default, totals) if variant.ablation else None,
    )


def worth_of(default: Sequence[Total], others: Sequence[Total]) -> Worth:
    """Round by round."""
    pairs = list(zip(default, others, strict=True))
    ms = Spread.of([other.step_ms - own.step_ms for own, other in pairs])
    stats = default[0].stats
    return Worth(
        ms=ms,
        share=Spread.of([other.step_ms / own.step_ms - 1 for own, other in pairs]),
        ms_of_256_tokens=ms.median * stats.steps / stats.emitted * PUBLISHED_TOKENS,
        ratio=Spread.of([own.tokens_per_second / other.tokens_per_second for own, other in pairs]),
    )


def _medians(samples: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: float(np.median([one[name] for one in samples])) for name in samples[0]}


def pending_seconds(model: Model, num_kept: int, rounds: int) -> float | None:
    """What a verify takes longer for the kept rows of the one before, which it has to apply.

    By the time of the recurrent ops alone, since beside all others it drowns in their spread.

    Args:
        num_kept: such rows.
        rounds: of a hundred windows each.

    Returns:
        A median; None where programs do not tell what their ops take.
    """
    if not isinstance(model.ops, HostOps):
        return None
    timed, rows = TimedOps(model.ops), model.num_draft + 1
    target = Decoder(model.trunk, cast(Ops, timed), **model.options)
    sequence, tokens = target.open_sequence(), [0] * rows
    for _ in target.prefill(sequence, [0] * min(CACHED, target.context - 2 * rows)):
        pass
    target.verify([Window(sequence, tokens, sequence.cursor.cache_len)])
    cursor = target.rollback(sequence, num_kept)
    window = Window(sequence, tokens, cursor.cache_len)
    samples: dict[int, list[float]] = {num_kept: [], 0: []}
    for _ in range(100 * rounds):
        for pending, seconds in samples.items():
            sequence.cursor = cursor._replace(pending=pending)
            timed.seconds.clear()
            target.verify([window])
            seconds.append(sum(timed.seconds[op] for op in RECURRENT_OPS))
    return float(np.median(samples[num_kept]) - np.median(samples[0]))


def catch_up_share(default: Sequence[Total], unfolded: Sequence[Total]) -> float:
    """Of the default's steps what it does for rows that drafts of one waiting row need not do."""
    shares = []
    for own, other in zip(default, unfolded, strict=True):
        more = own.phases_ms["draft"] - other.phases_ms["draft"]
        shares.append((more + own.phases_ms["catch-up"]) / own.step_ms)
    return float(np.median(shares))


def bounds_of(
    variants: Sequence[Variant], rounds: Sequence[Round], pending: float | None
) -> list[Bound]:
    """The default's rollback; its catch-up where it was measured beside one that is unfolded."""
    default = _totals(rounds, variants[0])
    step = float(np.median([total.step_ms for total in default]))
    rollback = float(np.median([total.phases_ms["rollback"] for total in default])) / step
    found = [Bound("rollback, of a step", rollback, MOST_ROLLBACK, at_most=True)]
    if pending is not None:
        name = "rollback, and applying the pending rows, of a step"
        whole = rollback + pending * 1e3 / step
        found.append(Bound(name, whole, MOST_ROLLBACK, at_most=True))
    for variant in variants[1:]:
        if variant.ablation is not None and variant.ablation.setting is MTP_FOLD_CATCHUP:
            catch_up = catch_up_share(default, _totals(rounds, variant))
            found.append(Bound("folded catch-up, of a step", catch_up, MOST_CATCH_UP, at_most=True))
    return found
