"""All contestants on the same prompts, in turns, each in a fresh process every round."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from benchmarks.peers.cases import Case, Cases
from benchmarks.peers.engine import PLAIN, PREFILL, Answer, Engine, Job, PeerError, Server

WARM_PROMPT, WARM_ANSWER = 96, 32
PREFILL_JOBS = 3
"""Of a round; each engine's process gets another prompt every time."""


@dataclass(frozen=True, slots=True)
class Contestant:
    """An engine in one of its modes."""

    engine: str
    mode: str

    @property
    def label(self) -> str:
        """For tables."""
        return f"{self.engine} {self.mode}"


@dataclass(frozen=True, slots=True)
class Sample:
    """One answer.

    Args:
        round: from 0.
        prompt: its id; of a prefill: its number in the round.
        category: of the prompt; ``prefill`` for random ids.
    """

    contestant: Contestant
    round: int
    prompt: str
    category: str
    answer: Answer


class Fresh:
    """A started engine that refuses to see a prompt twice, since an n-gram pool remembers.

    Args:
        server: as started.
        name: for errors.
    """

    def __init__(self, server: Server, name: str) -> None:
        self._server, self._name = server, name
        self._seen: set[tuple[int, ...]] = set()

    def complete(self, job: Job) -> Answer:
        """Answer.

        Raises:
            PeerError: it has seen this prompt, or the answer is no answer to the job.
        """
        if tuple(job.ids) in self._seen:
            raise PeerError(f"{self._name}: got a prompt twice in one process: expected it once")
        self._seen.add(tuple(job.ids))
        answer = self._server.complete(job)
        if not 1 <= answer.num_tokens <= job.max_tokens:
            raise PeerError(
                f"{self._name}: answered with {answer.num_tokens} tokens: expected 1 to "
                f"{job.max_tokens}"
            )
        return answer


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured.

    Args:
        rounds: passes over all prompts.
        prefill: ids of a prompt whose prefill is timed.
        say: hears what is going on.
    """

    rounds: int
    prefill: int
    say: Callable[[str], None]


def measure(
    engines: Sequence[Engine], cases: Cases, asked: Sequence[Case], plan: Plan
) -> Generator[Sample, None, None]:
    """Round after round: prefill alone, then every prompt in every mode.

    One engine computes at a time; the others' processes wait. Who was first is last next time.
    """
    drafting = [Contestant(e.name, mode) for e in engines for mode in e.speculations]
    plain = [Contestant(e.name, PLAIN) for e in engines]
    for number in range(plan.rounds):
        alone = [Contestant(e.name, PREFILL) for e in engines]
        timed = [cases.random((1, number, i), plan.prefill, 1) for i in range(PREFILL_JOBS)]
        jobs = [(str(i), PREFILL, job) for i, job in enumerate(timed)]
        yield from one_pass(engines, alone, cases, number, jobs, plan)
        jobs = [(case.prompt.id, case.prompt.category, case.job) for case in asked]
        yield from one_pass(engines, plain + drafting, cases, number, jobs, plan)


def one_pass(
    engines: Sequence[Engine],
    contestants: Sequence[Contestant],
    cases: Cases,
    number: int,
    jobs: Sequence[tuple[str, str, Job]],
    plan: Plan,
) -> Generator[Sample, None, None]:
    """Start them all, let each answer every job, and stop them, come what may."""
    by_name = {engine.name: engine for engine in engines}
    with ExitStack() as stack:
        servers: dict[Contestant, Fresh] = {}
        for one in contestants:
            server = by_name[one.engine].start(one.mode)
            stack.callback(server.stop)
            servers[one] = Fresh(server, one.label)
            length = plan.prefill if one.mode == PREFILL else WARM_PROMPT
            servers[one].complete(cases.random((0, number), length, WARM_ANSWER))
        for index, (prompt, category, job) in enumerate(jobs):
            plan.say(f"round {number + 1} of {plan.rounds}: {category} {prompt}")
            for one in contestants[:: -1 if (number + index) % 2 else 1]:
                answer = servers[one].complete(job)
                yield Sample(one, number, prompt, category, answer)
