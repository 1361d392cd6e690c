"""Several speculators in a row: the first that proposes is used, all hear what landed."""

from __future__ import annotations

from collections.abc import Sequence as Ordered
from dataclasses import replace

from specrt.speculative.speculator import Speculator
from specrt.state.messages import NO_DRAFT, Draft, DraftContext, Kept
from specrt.state.sequence import Sequence


class ChainSpeculator:
    """Asks each member for the contexts that are still without a draft; ``source`` says who drew.

    A member gets the gate that the user set, or falls back to its own default. The chain arms
    wherever one member can: a member that lacks rows proposes nothing until it has them.

    Args:
        members: in the order in which they are asked, at least one.
    """

    def __init__(self, members: Ordered[Speculator]) -> None:
        self.members = tuple(members)
        self.name = ",".join(member.name for member in self.members)
        self.max_draft = max(member.max_draft for member in self.members)
        self.default_pmin = self.members[-1].default_pmin
        self.taps = frozenset().union(*(member.taps for member in self.members))
        self.can_arm_after_prefix_reuse = any(m.can_arm_after_prefix_reuse for m in self.members)
        self.wants_prompt = any(member.wants_prompt for member in self.members)

    def propose(self, contexts: list[DraftContext]) -> list[Draft]:
        """One draft per context, from the first member that has one."""
        drafts = [NO_DRAFT] * len(contexts)
        waiting = list(range(len(contexts)))
        for member in self.members:
            asked = [_capped(contexts[i], member.max_draft) for i in waiting]
            for i, draft in zip(waiting, member.propose(asked), strict=True):
                drafts[i] = draft
            waiting = [i for i in waiting if not drafts[i].tokens]
            if not waiting:
                break
        return drafts

    def commit(self, kept: list[Kept]) -> None:
        """Every member hears of every row."""
        for member in self.members:
            member.commit(kept)

    def reset(self, sequence: Sequence) -> None:
        """Every member forgets, or follows back."""
        for member in self.members:
            member.reset(sequence)


def _capped(context: DraftContext, max_draft: int) -> DraftContext:
    return context if context.num_draft <= max_draft else replace(context, num_draft=max_draft)
