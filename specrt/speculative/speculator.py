"""Layer 2: the algorithm that guesses the next tokens. It knows nothing of architectures."""

from __future__ import annotations

from typing import Protocol

from specrt.state.messages import Draft, DraftContext, Kept, Tap
from specrt.state.sequence import Sequence


class Speculator(Protocol):
    """Proposes drafts, and hears of every row that the target kept, each position once.

    Args:
        name: as registered.
        max_draft: the most ids it can propose.
        default_pmin: the gate when the user sets none.
        taps: what it needs of the kept rows; empty means that the target computes none.
        can_arm_after_prefix_reuse: it can start over a prefix whose rows it has not heard of.
        wants_prompt: it takes the prompt's kept rows too.
    """

    name: str
    max_draft: int
    default_pmin: float
    taps: frozenset[Tap]
    can_arm_after_prefix_reuse: bool
    wants_prompt: bool

    def propose(self, contexts: list[DraftContext]) -> list[Draft]:
        """One draft per context."""

    def commit(self, kept: list[Kept]) -> None:
        """Follow the kept rows; committing a position again changes nothing."""

    def reset(self, sequence: Sequence) -> None:
        """Forget this sequence, or follow it back to a shorter history."""
