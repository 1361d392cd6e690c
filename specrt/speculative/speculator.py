"""Layer 2: the algorithm that guesses the next tokens. It knows nothing of architectures."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from specrt.state.messages import Draft, DraftContext, Kept, Tap
from specrt.state.sequence import Sequence


class Speculator(Protocol):
    """Proposes drafts, and hears of every row that the target kept, each position once.

    Args:
        name: as registered.
        max_draft: the most ids it can propose (>= 1).
        default_pmin: the gate when the user sets none.
        taps: what it needs of the kept rows; empty means that the target computes none.
        can_arm_after_prefix_reuse: it can start over a prefix whose rows it has not heard of. If
            not, a reused prefix is fed again from ``heard`` on.
        wants_prompt: it takes the prompt's kept rows too; who does not is never fed for.
    """

    name: str
    max_draft: int
    default_pmin: float
    taps: frozenset[Tap]
    can_arm_after_prefix_reuse: bool
    wants_prompt: bool

    def propose(self, contexts: list[DraftContext]) -> list[Draft]:
        """One draft per context; asking again changes nothing.

        Where a draft has confidences, the runtime cuts it before the first that is below the gate
        or NaN: whether a speculator stops there itself is a question of speed alone.
        """

    def commit(self, kept: list[Kept]) -> None:
        """Follow the kept rows; committing a position again changes nothing.

        Their taps are the target's own buffers, valid during the call only. Where a step or a chunk
        of the prompt is broken off after this, the same rows come again: until then they lie behind
        the cursor, and drafts go on from the cursor.
        """

    def reset(self, sequence: Sequence) -> None:
        """Forget this sequence, or follow it back to ``sequence.cursor.num_tokens`` ids."""

    def heard(self, sequence: Sequence) -> int:
        """How many leading positions it has heard of and still knows: what it can draft behind.

        Asked after ``reset``, when a new prompt shares a prefix with what the sequence holds, hence
        at most ``sequence.cursor.num_tokens``. A head with rows 0 .. n - 1 in its cache says n,
        however long it was not asked since; one whose ring has lost what it would need there, or
        that has no state for the sequence, says 0. If it cannot arm otherwise, ``commit`` then
        brings all rows from there on.
        """


def joined_names(speculators: Collection[Speculator]) -> str | None:
    """What statistics call them, None for nobody."""
    return ",".join(member.name for member in speculators) or None


def taps_of(speculators: Collection[Speculator]) -> frozenset[Tap]:
    """What they need of the target together."""
    return frozenset().union(*[member.taps for member in speculators])
