"""A speculator whose drafts a test scripts."""

from dataclasses import dataclass, field

from specrt.state.messages import FINAL_HIDDEN, Draft, DraftContext, Kept, Tap
from specrt.state.sequence import Sequence


@dataclass(eq=False)
class Scripted:
    """Proposes ``answers[slot]`` and writes down what it hears."""

    name: str
    answers: dict[int, list[int]]
    max_draft: int = 4
    default_pmin: float = 0.35
    taps: frozenset[Tap] = frozenset({FINAL_HIDDEN})
    can_arm_after_prefix_reuse: bool = False
    wants_prompt: bool = False
    asked: list[list[tuple[int, int, float | None]]] = field(default_factory=list)
    heard: list[Kept] = field(default_factory=list)
    resets: list[Sequence] = field(default_factory=list)

    def propose(self, contexts: list[DraftContext]) -> list[Draft]:
        self.asked.append([(c.sequence.slot, c.num_draft, c.pmin) for c in contexts])
        return [
            Draft(self.answers.get(c.sequence.slot, [])[: c.num_draft], [], self.name)
            for c in contexts
        ]

    def commit(self, kept: list[Kept]) -> None:
        self.heard += kept

    def reset(self, sequence: Sequence) -> None:
        self.resets.append(sequence)
