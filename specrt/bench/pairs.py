"""The same answer twice, plain and speculative: equal first, timed second.

Both answers grow in turns, a few ids at a time: so what slows the machine for a while slows both.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass

from specrt.bench.prompts import FOLLOW_UPS, Prompt
from specrt.bench.timing import WrongResultError
from specrt.completion import Completion
from specrt.generate import Spec
from specrt.llm import LLM
from specrt.lossless import difference
from specrt.options import SamplingParams
from specrt.session import Session
from specrt.stream import Stream

TURN = 8
"""Ids that one side emits before the other goes on."""


@dataclass(frozen=True, slots=True)
class Run:
    """One answer.

    Args:
        completion: with its statistics.
        seconds: of everything but the target's prefill; the drafter's share of it counts.
    """

    completion: Completion
    seconds: float

    @property
    def tokens_per_second(self) -> float:
        """Emitted ids per second."""
        return len(self.completion.token_ids) / self.seconds


@dataclass(frozen=True, slots=True)
class Pair:
    """An answer both ways; turn 1 is the first."""

    prompt: Prompt
    turn: int
    plain: Run
    spec: Run

    @property
    def ratio(self) -> float:
        """How many times as fast speculation is."""
        return self.spec.tokens_per_second / self.plain.tokens_per_second


def pairs(
    llm: LLM, prompt: Prompt, params: SamplingParams, spec: Spec, rounds: int, turns: int = 1
) -> Iterator[Pair]:
    """``conversations``; of several turns the first is not given, which is what one alone shows."""
    for pair in conversations(llm, prompt, params, spec, rounds, turns):
        if pair.turn > 1 or turns == 1:
            yield pair


def conversations(
    llm: LLM, prompt: Prompt, params: SamplingParams, spec: Spec, rounds: int, turns: int
) -> Iterator[Pair]:
    """Converse that many times, both ways in alternating order, and compare every turn.

    Raises:
        WrongResultError: speculation changed an answer.
    """
    for number in range(rounds):
        # What a side gets first, its turn and its pages alike, the other one gets next time.
        order = ("plain", "spec")[:: -1 if number % 2 else 1]
        with ExitStack() as stack:
            sessions = {name: stack.enter_context(closing(llm.session())) for name in order}
            for session in sessions.values():
                session.messages = list(prompt.messages[:-1])
            for turn in range(1, turns + 1):
                content = _says(prompt, turn)
                sides = runs(sessions, content, params, {"plain": "none", "spec": spec})
                pair = Pair(prompt, turn, **sides)
                check_equal(pair)
                yield pair


def run(session: Session, content: str, params: SamplingParams, spec: Spec) -> Run:
    """Say something with thinking off; the time begins when the prompt's ids are known."""
    return runs({"only": session}, content, params, {"only": spec})["only"]


def runs(
    sessions: Mapping[str, Session], content: str, params: SamplingParams, specs: Mapping[str, Spec]
) -> dict[str, Run]:
    """Say the same in several sessions, which answer in turns."""
    streams = {
        name: session.stream_send(content, params, spec=specs[name], enable_thinking=False)
        for name, session in sessions.items()
    }
    return answers(streams)


def answers(streams: Mapping[str, Stream]) -> dict[str, Run]:
    """Run several streams to their ends, a few ids at a time; the order of turns alternates."""
    seconds = dict.fromkeys(streams, 0.0)
    going = list(streams)
    while going:
        for name in list(going):
            start = time.perf_counter()
            ended = _advance(streams[name])
            seconds[name] += time.perf_counter() - start
            if ended:
                going.remove(name)
        going.reverse()
    return {name: _finished(stream, seconds[name]) for name, stream in streams.items()}


def _advance(stream: Stream) -> bool:
    """One turn; True if the answer ended in it."""
    emitted = 0
    for piece in stream:
        emitted += len(piece.token_ids)
        if emitted >= TURN:
            return False
    return True


def _finished(stream: Stream, seconds: float) -> Run:
    assert stream.completion is not None
    return Run(stream.completion, seconds - stream.stats.phases.prefill / 1e3)


def check_equal(pair: Pair) -> None:
    """The law, before any time is told.

    Raises:
        WrongResultError: something but the speed differs.
    """
    found = difference(pair.spec.completion, pair.plain.completion)
    if found is not None:
        where = f"{pair.prompt.id}, turn {pair.turn}"
        raise WrongResultError(f"{where}: speculation changed the answer: {found}")


def _says(prompt: Prompt, turn: int) -> str:
    if turn == 1:
        return prompt.messages[-1]["content"]
    return FOLLOW_UPS[(turn - 2) % len(FOLLOW_UPS)]
