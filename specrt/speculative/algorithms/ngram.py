"""Prompt lookup: propose what followed the last n ids when they stood in the sequence before."""

from __future__ import annotations

from specrt._ext.ngram_index import NgramIndex
from specrt.options import MAX_DRAFT
from specrt.state.messages import NO_DRAFT, Draft, DraftContext, Kept, Tap
from specrt.state.sequence import Sequence


class NgramSpeculator:
    """Copies the continuation of the newest earlier occurrence, longest n-gram first.

    It needs nothing of the target, and no weights. The index belongs to the sequence. The gate p
    raises the least order to ``min_order + round((max_order - min_order) * p)``: an n-gram has no
    probability of its own, hence its drafts carry no confidences.

    Args:
        min_order: the shortest n-gram that counts as a hit.
        max_order: the longest that is tried.
    """

    name = "ngram"
    max_draft = MAX_DRAFT
    default_pmin = 0.0
    taps: frozenset[Tap] = frozenset()
    can_arm_after_prefix_reuse = True
    wants_prompt = True

    def __init__(self, min_order: int = 2, max_order: int = 8) -> None:
        self.min_order = min_order
        self.max_order = max_order

    def propose(self, contexts: list[DraftContext]) -> list[Draft]:
        """One draft per context; empty where no n-gram of the least order is known."""
        drafts = []
        for context in contexts:
            sequence = context.sequence
            index = sequence.drafter_states.get(self)
            if index is None:
                index = self._new_index(sequence)
            index.follow(sequence.cursor.num_tokens)
            least = self.least_order(context.pmin) if context.pmin else self.min_order
            tokens = index.propose(context.num_draft, least)
            drafts.append(Draft(tokens, [], self.name) if tokens else NO_DRAFT)
        return drafts

    def commit(self, kept: list[Kept]) -> None:
        """Index the rows; what they leave out, the next ``propose`` reads from the history."""
        for rows in kept:
            index = rows.sequence.drafter_states.get(self)
            if index is None:
                index = self._new_index(rows.sequence)
            if rows.start_pos <= len(index):
                index.commit(rows.start_pos, rows.tokens, rows.next_token)

    def reset(self, sequence: Sequence) -> None:
        """Follow the sequence back to its cursor."""
        index = sequence.drafter_states.get(self)
        if index is not None:
            index.rewind(min(len(index), sequence.cursor.num_tokens))

    def heard(self, sequence: Sequence) -> int:
        """The ids that its index holds; it needs none, as the history has them all."""
        return len(sequence.drafter_states.get(self, ()))

    def least_order(self, pmin: float) -> int:
        """The shortest n-gram that counts at this gate."""
        return self.min_order + round((self.max_order - self.min_order) * pmin)

    def _new_index(self, sequence: Sequence) -> NgramIndex:
        index = NgramIndex(sequence.history, self.min_order, self.max_order)
        sequence.drafter_states[self] = index
        return index
