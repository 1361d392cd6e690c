"""Speculators whose drafts a test scripts, and requests that need no model."""

from collections.abc import Callable
from dataclasses import dataclass, field

from specrt.options import SamplingParams
from specrt.speculative.accept import Boundary
from specrt.speculative.governor import FixedPolicy
from specrt.speculative.request import Request
from specrt.state.messages import FINAL_HIDDEN, Draft, DraftContext, Kept, Tap
from specrt.state.sequence import Cursor, Sequence

CONTEXT = 50


@dataclass(eq=False)
class Scripted:
    """Proposes ``answers[slot]`` and writes down what it hears."""

    name: str
    answers: dict[int, list[int]]
    confidences: list[float] = field(default_factory=list)
    max_draft: int = 4
    default_pmin: float = 0.35
    taps: frozenset[Tap] = frozenset({FINAL_HIDDEN})
    can_arm_after_prefix_reuse: bool = True
    wants_prompt: bool = False
    asked: list[list[tuple[int, int, float | None]]] = field(default_factory=list)
    told: list[list[Kept]] = field(default_factory=list)

    def propose(self, contexts: list[DraftContext]) -> list[Draft]:
        self.asked.append([(c.sequence.slot, c.num_draft, c.pmin) for c in contexts])
        return [
            Draft(self.answers.get(c.sequence.slot, [])[: c.num_draft], self.confidences, self.name)
            for c in contexts
        ]

    def commit(self, kept: list[Kept]) -> None:
        self.told.append(kept)

    def reset(self, sequence: Sequence) -> None:
        pass

    def heard(self, sequence: Sequence) -> int:
        return sequence.cursor.num_tokens


class Head:
    """Stands for a trained head: it drafts only behind rows that it has heard of, all of them.

    Args:
        script: from a context to draft ids.

    Attributes:
        positions: of all rows that were new to it, in the order heard.
        fails: raised by the next ``commit``, once half of it is done.
    """

    max_draft = 3
    default_pmin = 0.75
    taps = frozenset({FINAL_HIDDEN})
    can_arm_after_prefix_reuse = False
    wants_prompt = True

    def __init__(self, script: Callable[[DraftContext], list[int]], name: str = "head") -> None:
        self.name = name
        self.script = script
        self.positions: list[int] = []
        self.fails: Exception | None = None

    def propose(self, contexts: list[DraftContext]) -> list[Draft]:
        return [self._propose(context) for context in contexts]

    def commit(self, kept: list[Kept]) -> None:
        for rows in kept:
            known = self.heard(rows.sequence)
            assert rows.start_pos <= known, f"rows from {rows.start_pos}, heard {known}"
            end = rows.start_pos + len(rows.tokens)
            assert rows.taps[FINAL_HIDDEN].shape[0] == len(rows.tokens)
            self.positions += range(known, end)
            rows.sequence.drafter_states[self] = max(known, end)
            if self.fails is not None:
                raise self.fails

    def reset(self, sequence: Sequence) -> None:
        known = self.heard(sequence)
        if known > sequence.cursor.num_tokens:
            sequence.drafter_states[self] = sequence.cursor.num_tokens

    def heard(self, sequence: Sequence) -> int:
        return sequence.drafter_states.get(self, 0)

    def _propose(self, context: DraftContext) -> Draft:
        armed = self.heard(context.sequence) == context.sequence.cursor.cache_len
        tokens = self.script(context)[: context.num_draft] if armed else []
        return Draft(tokens, [0.9] * len(tokens), self.name)


class Rows:
    """A target as far as drafts see one: kept rows without taps."""

    vocab_size = 100

    def kept_rows(self, sequence, start, end, taps):
        tokens = sequence.history[start : end + 1].tolist()
        yield Kept(sequence, start, tokens[:-1], tokens[-1], {})


def request_of(slot: int, *speculators, num_draft: int = 4, pmin: float | None = None) -> Request:
    """A request in its own sequence, [1, 2] fed and 3 the last token."""
    sequence = Sequence(slot, CONTEXT)
    sequence.history[:3] = [1, 2, 3]
    sequence.cursor, sequence.prompt_len = Cursor(num_tokens=3, cache_len=2), 3
    return Request(
        sequence=sequence,
        params=SamplingParams(),
        sampler=None,
        boundary=Boundary(frozenset(), (), 0, CONTEXT, lambda token: b""),
        speculators=speculators,
        policy=FixedPolicy(num_draft),
        pmin=pmin,
    )
