"""Drafts of a block drafter, by the host's clock and that of their programs, and first tokens."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from specrt.bench.draft_floors import DraftTouched, draft_touched
from specrt.bench.floor_steps import SpeedKey, make_speeds
from specrt.bench.ops_around import HeardOps
from specrt.bench.timing import WrongResultError, rounds_of, timed
from specrt.drafters.dflash_head import DFlashHead
from specrt.errors import UnsupportedError
from specrt.host import HostOps
from specrt.llm import LLM
from specrt.options import SamplingParams, SpecOptions
from specrt.speculative.algorithms.block import BLOCK
from specrt.state.messages import DraftContext
from specrt.state.sequence import Sequence as TokenSequence

MOST_READ = 1 << 30
"""Bytes that stand for as many as a draft touches, since no cache holds so many."""
ANSWER = 64
"""Tokens that an answer could have, so that its first step drafts."""
PLAIN = "none"


def second_call(call: Callable[[], object]) -> float:
    """Seconds of a call behind the same one: another would leave other caches, and idle threads."""
    call()
    return timed(call)


@dataclass(frozen=True, slots=True)
class DraftKey:
    """A draft behind so many tokens, of which the last rows wait to be injected.

    Args:
        timed: each phase of its program, besides the whole.
    """

    cached: int
    waiting: int
    timed: bool = False


@dataclass(frozen=True, slots=True)
class Trace:
    """What one draft took, in seconds.

    Args:
        seconds: all of it.
        ops: (an op, its seconds) of the program's phases in turn.
        walk: reading what it left, and picking ids.
    """

    seconds: float
    ops: list[tuple[str, float]]
    walk: float


@dataclass(frozen=True, slots=True)
class DraftRound:
    """Seconds of everything once, and of timed drafts what they were made of."""

    seconds: dict[DraftKey | SpeedKey, float]
    traces: dict[DraftKey, Trace]


@dataclass(frozen=True, slots=True)
class FirstToken:
    """One prompt, in seconds.

    Args:
        prefill: what follows it included.
        following: what the drafter does as it hears of the prompt's rows.
        all: up to the end of the first step, which may draft.
    """

    prefill: float
    following: float
    all: float


class DraftSteps:
    """A block drafter behind texts of random tokens.

    Args:
        llm: with the drafter, and a sequence more than there are contexts.
        ops: whose programs those of the model are.
        host: where they run.
        contexts: tokens before the block, a sequence for each.
        waiting: rows that are injected.

    Attributes:
        head: the drafter.
        speeds: what the machine does, and how much of it in a call.

    Raises:
        UnsupportedError: there is no block drafter.
    """

    def __init__(
        self,
        llm: LLM,
        ops: HeardOps,
        host: HostOps,
        contexts: Sequence[int],
        waiting: Sequence[int],
    ) -> None:
        self._llm, self._ops = llm, ops
        resolved = llm.speculation.resolve(SpecOptions(type=BLOCK))
        head = llm.speculation.loaded_head
        if not isinstance(head, DFlashHead):
            reasons = "; ".join(one.reason for one in resolved.declined)
            raise UnsupportedError(
                f"{llm.head_file.path}: no block drafter ({reasons}); pass one as --draft-model"
            )
        (self._speculator,) = resolved.speculators
        self.head, self._waiting = head, list(waiting)
        random = np.random.default_rng(0)
        self._tokens = random.integers(0, llm.target.vocab_size, llm.context).tolist()
        self._sequences = {cached: self._followed(cached) for cached in contexts}
        most = max(one.num_bytes for one in self.touched().values())
        self.speeds = make_speeds([host], min(MOST_READ, most))
        self._traces: dict[DraftKey, Trace] = {}

    def check(self) -> None:
        """Check that drafts do not depend on how many rows wait, or on whether they are timed.

        Raises:
            WrongResultError: they do, or they are shorter than the block.
        """
        for cached in self._sequences:
            drafts = [self._draft(cached, waiting) for waiting in self._waiting]
            with self._ops.listening():
                drafts.append(self._draft(cached, self._waiting[0]))
            if any(draft != drafts[0] for draft in drafts):
                raise WrongResultError(
                    f"a draft behind {cached} tokens depends on how many rows wait: {drafts}"
                )
            if len(drafts[0]) != self.head.num_drafting:
                raise WrongResultError(
                    f"a draft behind {cached} tokens has {len(drafts[0])} ids, expected "
                    f"{self.head.num_drafting}"
                )

    def touched(self) -> dict[DraftKey, DraftTouched]:
        """What each draft touches."""
        weights, kv_type = self.head.weights, self._llm.target.kv_type
        return {
            DraftKey(cached, waiting): draft_touched(weights, kv_type, cached, waiting)
            for cached in self._sequences
            for waiting in self._waiting
        }

    def rounds(self, number: int) -> Iterator[DraftRound]:
        """So many rounds of everything, behind one that does not count."""
        calls: dict[DraftKey | SpeedKey, Callable[[], Any]] = {
            key: speed.run for key, speed in self.speeds.items()
        }
        for key in self.touched():
            calls[key] = partial(self._draft, key.cached, key.waiting)
            timed = replace(key, timed=True)
            calls[timed] = partial(self._trace, timed)
        for _ in rounds_of(calls, 1):
            pass
        for seconds in rounds_of(calls, number, second_call):
            yield DraftRound(seconds, dict(self._traces))

    def first_tokens(self, prompt: int, number: int) -> Iterator[dict[str, FirstToken]]:
        """So many rounds of a prompt without and with a drafter, behind one that does not count.

        Raises:
            WrongResultError: the drafter changes the first token.
        """
        for place in range(-1, number):
            found = {}
            for spec in (PLAIN, BLOCK)[:: -1 if place % 2 else 1]:
                found[spec] = self._first_token(self._tokens[:prompt], spec)
            if found[PLAIN][0] != found[BLOCK][0]:
                raise WrongResultError(f"the drafter changes the first token of {prompt}")
            if place >= 0:
                yield {spec: took for spec, (_, took) in found.items()}

    def _followed(self, cached: int) -> TokenSequence:
        """A sequence that has consumed so many tokens, and that the drafter follows."""
        target, sequence = self._llm.target, self._llm.target.open_sequence()
        sequence.history[: cached + 1] = self._tokens[: cached + 1]
        sequence.cursor = sequence.cursor._replace(num_tokens=cached + 1)
        for kept in target.prefill(sequence, self._tokens[:cached], self._speculator.taps):
            self._speculator.commit([kept])
        num = self.head.num_drafting
        self._speculator.propose([DraftContext(sequence, num, 0.0)])  # injects what waits
        return sequence

    def _draft(self, cached: int, waiting: int) -> list[int]:
        """The ids that it drafts, once it is to inject so many rows again."""
        sequence = self._sequences[cached]
        sequence.drafter_states[self.head].injected = cached - waiting
        context = DraftContext(sequence, self.head.num_drafting, 0.0)
        (draft,) = self._speculator.propose([context])
        return draft.tokens

    def _trace(self, key: DraftKey) -> None:
        num, picks = self.head.num_drafting, self.head.weights.picks
        with self._ops.listening() as ops:
            begin = time.perf_counter()
            self._draft(key.cached, key.waiting)
            drafted = time.perf_counter()
        again = time.perf_counter()
        picks.read(0, num, num)
        self._traces[key] = Trace(drafted - begin, ops, time.perf_counter() - again)

    def _first_token(self, tokens: list[int], spec: str) -> tuple[int, FirstToken]:
        generator, target = self._llm.generator, self._llm.target
        sequence = target.open_sequence()
        try:
            params = SamplingParams(max_tokens=ANSWER, ignore_eos=True)
            request = generator.request(sequence, tokens, params, spec)
            begin = time.perf_counter()
            generator.runtime.prefill(request)
            filled = time.perf_counter()
            (accepted,) = generator.runtime.step([request])
            end = time.perf_counter()
        finally:
            target.close_sequence(sequence)
        following = request.stats.phases.catch_up / 1e3
        return accepted.tokens[0], FirstToken(filled - begin, following, end - begin)
