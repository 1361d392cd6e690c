"""A drafter that is always wrong, and a runtime that emits a given text at the true cost."""

from __future__ import annotations

import numpy as np

from specrt.options import MAX_DRAFT
from specrt.speculative.runtime import Runtime
from specrt.speculative.target import Target
from specrt.state.messages import Draft, DraftContext, Kept, Tap, Verification, Window
from specrt.state.sequence import Sequence


class WrongSpeculator:
    """Proposes as much as it may, and nothing of it is right.

    Attributes:
        text: prompt and answer, as plain decoding gives them.
    """

    name = "wrong"
    max_draft = MAX_DRAFT
    default_pmin = 0.0
    taps: frozenset[Tap] = frozenset()
    can_arm_after_prefix_reuse = True
    wants_prompt = False

    def __init__(self) -> None:
        self.text: list[int] = []

    def propose(self, contexts: list[DraftContext]) -> list[Draft]:
        """Neighbours of the true ids."""
        return [Draft(self._neighbours(context), [], self.name) for context in contexts]

    def commit(self, kept: list[Kept]) -> None:
        """Nothing to follow."""

    def reset(self, sequence: Sequence) -> None:
        """Nothing to forget."""

    def heard(self, sequence: Sequence) -> int:
        """It needs nothing of what there is."""
        return sequence.cursor.num_tokens

    def _neighbours(self, context: DraftContext) -> list[int]:
        end = context.sequence.cursor.num_tokens
        truth = self.text[end : end + context.num_draft]
        return [token - 1 if token else 1 for token in truth]


class ForcedRuntime(Runtime):
    """Computes what a runtime computes, and takes the drawn ids from a text.

    Args:
        target: the model.
        text: ids of one sequence, its prompt included.
    """

    def __init__(self, target: Target, text: list[int]) -> None:
        super().__init__(target)
        self._text = np.array(text, np.int32)

    def _verify(self, windows: list[Window], taps: frozenset[Tap], logits: bool) -> Verification:
        verification = super()._verify(windows, taps, logits)
        (window,) = windows
        first, draft = window.start_pos + 1, window.tokens[1:]
        ids = self._text[first : first + len(verification.ids)]
        differs = [i for i, token in enumerate(draft) if token != ids[i]]
        m = min(differs, default=len(draft))
        outcomes = np.array([[m, ids[m], first + m]], np.int32)
        return verification._replace(ids=ids, outcomes=outcomes)
