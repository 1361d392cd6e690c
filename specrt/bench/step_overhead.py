"""What a step costs outside its program: ``Runtime.step`` over a decoder that follows a script."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from time import perf_counter_ns
from typing import Final

import numpy as np

from specrt.bench.blank_model import Script, blank_decoder
from specrt.bench.cases import VOCABULARIES
from specrt.bench.timing import Latency, WrongResultError, collector_off
from specrt.options import SamplingParams
from specrt.sampling import make_sampler
from specrt.speculative import chain
from specrt.speculative.accept import Boundary
from specrt.speculative.algorithms.ngram import NgramSpeculator
from specrt.speculative.governor import AdaptivePolicy, Governor
from specrt.speculative.request import Policy, Request
from specrt.speculative.runtime import Runtime
from specrt.speculative.speculator import Speculator
from specrt.state.messages import DraftContext
from specrt.state.sequence import Cursor

NUM_DRAFT: Final = 8
BLOCK: Final = 100
"""Steps between two returns to the beginning, so that a history keeps its length."""
PERIOD: Final = 200
"""Ids after which the text repeats: it can be drafted, and no draft reaches its own end."""
VOCABULARY: Final = VOCABULARIES[0]
WARM_BYTES: Final = 64 << 10
COLD_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class StepCase:
    """One kind of step.

    Args:
        drafts: n-gram drafts under the governor; else every step is plain.
        sampled: the program draws at a temperature; else its argmax ids decide.
        cold: programs read more than the caches hold, as a model's weights are.
        history: ids before the first step.
    """

    drafts: bool
    sampled: bool
    cold: bool
    history: int

    @property
    def name(self) -> str:
        """Without the history."""
        kind = f"ngram K = {NUM_DRAFT}" if self.drafts else "plain"
        return f"{kind}, {'sampled' if self.sampled else 'greedy'}{', cold' * self.cold}"


STEP_CASES: Final = tuple(
    StepCase(drafts, sampled, cold, history)
    for (sampled, cold), drafts, history in product(
        ((False, False), (True, False), (False, True)), (False, True), (1_000, 100_000)
    )
)


@dataclass(frozen=True, slots=True)
class StepTime:
    """Microseconds of a step.

    Args:
        overhead: all but its program.
        draws: beside that, what the program draws: all rows, over the whole vocabulary.
        num_steps: of the case's K.
    """

    overhead: Latency
    draws: Latency
    num_steps: int


class _Eager(AdaptivePolicy):
    """Does all that the governor does, and drafts whatever it finds.

    Beside a program of nothing but draws they decide what pays, and every stall.
    """

    def num_draft(self, member: str, max_draft: int, others: int = 0, gate: float = 0.0) -> int:
        """As many as there is room for."""
        super().num_draft(member, max_draft, others, gate)
        return max_draft


class _Stage:
    """A runtime and one sequence of a case, which starts again after every block of steps."""

    def __init__(self, case: StepCase) -> None:
        self.case = case
        length = case.history + BLOCK * (NUM_DRAFT + 1) + NUM_DRAFT + 1
        period = np.random.default_rng(1).integers(0, VOCABULARY - 1, PERIOD, np.int32)
        read = np.ones((COLD_BYTES if case.cold else WARM_BYTES) // 8)  # zeros may share a page
        self.script = Script(np.resize(period, length), read)
        self.target = blank_decoder(self.script, VOCABULARY)
        self.runtime = Runtime(self.target)
        self.sequence = self.target.open_sequence()
        self.sequence.history[: case.history] = self.script.text[: case.history]
        self.sequence.prompt_len = case.history
        self.speculators: tuple[Speculator, ...] = (NgramSpeculator(),) if case.drafts else ()
        governor = Governor()
        self.policy: Policy = _Eager(governor.rows, governor.drafts, governor.options)
        self.rewind()
        for speculator in self.speculators:  # prefill has had it index the prompt
            speculator.propose([DraftContext(self.sequence, NUM_DRAFT)])

    def rewind(self) -> None:
        """Back to the prompt."""
        length = self.case.history
        self.sequence.cursor = Cursor(num_tokens=length, cache_len=length - 1)
        chain.reset(self.sequence)

    def request(self) -> Request:
        """A request that nothing in the text ends."""
        params = SamplingParams(temperature=0.8 if self.case.sampled else 0.0, seed=1)
        return Request(
            sequence=self.sequence,
            params=params,
            sampler=make_sampler(params, VOCABULARY),
            boundary=Boundary(
                end_ids=frozenset((VOCABULARY - 1,)),
                stops=(),
                min_total=0,
                max_total=self.target.context,
                token_bytes=([b"text"] * VOCABULARY).__getitem__,
            ),
            speculators=self.speculators,
            policy=self.policy,
            max_draft=NUM_DRAFT,
        )

    def steps(self, calls: int) -> Iterator[tuple[int, int, int]]:
        """K, and the nanoseconds of overhead and draws of each step."""
        for call in range(calls):
            if call % BLOCK == 0:
                self.rewind()
                request = self.request()
            drafted = request.stats.num_drafted
            start = perf_counter_ns()
            self.runtime.step([request])
            spent = perf_counter_ns() - start
            draws = self.script.draws.take()
            overhead = spent - self.script.watch.take() - draws
            yield request.stats.num_drafted - drafted, overhead, draws
            if (call + 1) % BLOCK == 0:
                self.check()

    def check(self) -> None:
        """Raise ``WrongResultError`` unless the sequence is the text."""
        if self.sequence.tokens != self.script.text[: self.sequence.cursor.num_tokens].tolist():
            raise WrongResultError(f"step {self.case.name}: other ids than the script's")


def step_time(case: StepCase, calls: int) -> StepTime:
    """Whole blocks of steps, at least ``calls``.

    Raises:
        WrongResultError: what was emitted is not the script's text, or no step had the case's K.
    """
    with collector_off():
        steps = list(_Stage(case).steps(-(-calls // BLOCK) * BLOCK))
    wanted = NUM_DRAFT if case.drafts else 0
    overhead, draws = (
        [step[part] * 1e-9 for step in steps if step[0] == wanted] for part in (1, 2)
    )
    if not overhead:
        raise WrongResultError(f"step {case.name}: none of {len(steps)} had that K")
    return StepTime(Latency.of(overhead), Latency.of(draws), len(overhead))
