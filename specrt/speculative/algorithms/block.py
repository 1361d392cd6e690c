"""A learned drafter that proposes a whole block in one forward."""

from __future__ import annotations

from specrt.speculative.draft_head import BlockHead
from specrt.state.messages import Draft, DraftContext, Kept
from specrt.state.sequence import Sequence

BLOCK = "block"


class BlockSpeculator:
    """Drafts with a head of kind "block".

    A draft ends before the first token at which the probability of all up to it, the product of
    their confidences, is below the gate: rows of a block do not know what was picked before them,
    so that a late one is worth what the whole prefix is.

    Args:
        head: bound to the target.

    Attributes:
        head: as given.
    """

    name = BLOCK
    default_pmin = 0.35
    can_arm_after_prefix_reuse = True
    wants_prompt = True

    def __init__(self, head: BlockHead) -> None:
        self.head = head
        self.max_draft = head.num_drafting
        self.taps = head.taps

    def propose(self, contexts: list[DraftContext]) -> list[Draft]:
        """One draft per context, up to the first token whose prefix is too unlikely."""
        drafts = self.head.draft_block(contexts)
        return [
            self._cut(draft, context.pmin) for draft, context in zip(drafts, contexts, strict=True)
        ]

    def commit(self, kept: list[Kept]) -> None:
        """Hand the rows to the head."""
        self.head.catch_up(kept)

    def reset(self, sequence: Sequence) -> None:
        """Nothing here: what is kept of a sequence is the head's, who follows by itself."""

    def heard(self, sequence: Sequence) -> int:
        """The head's."""
        return self.head.heard(sequence)

    def _cut(self, draft: Draft, pmin: float | None) -> Draft:
        tokens, confidences, _ = draft
        gate, prefix, valid = self.default_pmin if pmin is None else pmin, 1.0, 0
        for confidence in confidences:
            prefix *= confidence
            if not prefix >= gate:  # NaN too
                break
            valid += 1
        return Draft(tokens[:valid], confidences[:valid], self.name)
