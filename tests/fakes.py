"""A speculator that tests script."""

from __future__ import annotations

from collections.abc import Callable

from specrt.state.messages import Draft, DraftContext, Kept, Tap
from specrt.state.sequence import Sequence


class ScriptedSpeculator:
    """Proposes what a function says, and records what it hears.

    Args:
        script: from a context to draft ids.
    """

    name = "scripted"
    max_draft = 64
    default_pmin = 0.0
    can_arm_after_prefix_reuse = True
    wants_prompt = True

    def __init__(
        self, script: Callable[[DraftContext], list[int]], taps: frozenset[Tap] = frozenset()
    ) -> None:
        self.script = script
        self.taps = taps
        self.kept: list[Kept] = []

    def propose(self, contexts: list[DraftContext]) -> list[Draft]:
        return [Draft(self.script(context), [], self.name) for context in contexts]

    def commit(self, kept: list[Kept]) -> None:
        self.kept += kept

    def reset(self, sequence: Sequence) -> None:
        pass

    def heard(self, sequence: Sequence) -> int:
        return sequence.cursor.num_tokens
