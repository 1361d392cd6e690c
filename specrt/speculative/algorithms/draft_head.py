"""A learned head that drafts token by token, each pass from the hidden row of the one before."""

from __future__ import annotations

from specrt.options import MAX_DRAFT
from specrt.speculative.draft_head import PerTokenHead
from specrt.state.messages import DRAFT_HEAD, Draft, DraftContext, Kept
from specrt.state.sequence import Sequence


class DraftHeadSpeculator:
    """Drafts with a head of kind "per_token".

    Args:
        head: bound to the target.
    """

    name = DRAFT_HEAD
    max_draft = MAX_DRAFT
    default_pmin = 0.75
    can_arm_after_prefix_reuse = False
    wants_prompt = True

    def __init__(self, head: PerTokenHead) -> None:
        self._head = head
        self.taps = head.taps

    def propose(self, contexts: list[DraftContext]) -> list[Draft]:
        """One draft per context, up to the first token that is too unlikely."""
        drafts = self._head.draft_chain([self._gated(context) for context in contexts])
        return [Draft(tokens, confidences, self.name) for tokens, confidences, _ in drafts]

    def commit(self, kept: list[Kept]) -> None:
        """Hand the rows to the head."""
        self._head.catch_up(kept)

    def reset(self, sequence: Sequence) -> None:
        """Nothing here: what is kept of a sequence is the head's, who follows by itself."""

    def heard(self, sequence: Sequence) -> int:
        """The head's."""
        return self._head.heard(sequence)

    def _gated(self, context: DraftContext) -> DraftContext:
        sequence, num_draft, pmin = context
        return DraftContext(sequence, num_draft, self.default_pmin if pmin is None else pmin)
