"""Drafters that are wrong as often as one likes, and a runtime that emits a given text."""

from __future__ import annotations

import numpy as np

from specrt.options import MAX_DRAFT
from specrt.speculative.runtime import Runtime
from specrt.speculative.speculator import Speculator
from specrt.speculative.target import Target
from specrt.state.messages import Draft, DraftContext, Kept, Tap, Verification, Window
from specrt.state.sequence import Sequence

POSITIONS = 1 << 16
"""After which the draws of a synthetic drafter begin again."""


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
        """A draft for each."""
        return [Draft(self._drafted(context), [], self.name) for context in contexts]

    def commit(self, kept: list[Kept]) -> None:
        """Nothing to follow."""

    def reset(self, sequence: Sequence) -> None:
        """Nothing to forget."""

    def heard(self, sequence: Sequence) -> int:
        """It needs nothing of what there is."""
        return sequence.cursor.num_tokens

    def _drafted(self, context: DraftContext) -> list[int]:
        """Neighbours of the true ids."""
        end = context.sequence.cursor.num_tokens
        truth = self.text[end : end + context.num_draft]
        return [token - 1 if token else 1 for token in truth]


class SyntheticSpeculator(WrongSpeculator):
    """Proposes as much as it may; each token is right with one probability, whatever the others.

    Whether a position is drafted rightly is drawn once, so that equal runs have equal drafts.

    Args:
        acceptance: the probability.
        seed: of the draws.
    """

    name = "synthetic"

    def __init__(self, acceptance: float, seed: int = 0) -> None:
        super().__init__()
        draws = np.random.default_rng(seed).random(POSITIONS)
        self._right: list[bool] = (draws < acceptance).tolist()

    def _drafted(self, context: DraftContext) -> list[int]:
        end = context.sequence.cursor.num_tokens
        truth, wrong = self.text[end : end + context.num_draft], super()._drafted(context)
        return [
            right if self._right[position % POSITIONS] else other
            for position, (right, other) in enumerate(zip(truth, wrong, strict=True), end)
        ]


class SyntheticHead(SyntheticSpeculator):
    """Another speculator that drafts, hears and forgets, and whose ids are replaced.

    So a draft costs what the other's costs, and is right as often as one likes.

    Args:
        drafter: who works.
        acceptance, seed: of what is proposed in place of its ids.
    """

    can_arm_after_prefix_reuse = False
    wants_prompt = True

    def __init__(self, drafter: Speculator, acceptance: float, seed: int = 0) -> None:
        super().__init__(acceptance, seed)
        self._drafter = drafter
        self.taps = drafter.taps
        self.max_draft = drafter.max_draft

    def propose(self, contexts: list[DraftContext]) -> list[Draft]:
        """Its work, and other ids."""
        self._drafter.propose([context._replace(pmin=0.0) for context in contexts])
        return super().propose(contexts)

    def commit(self, kept: list[Kept]) -> None:
        """The other's."""
        self._drafter.commit(kept)

    def reset(self, sequence: Sequence) -> None:
        """The other's."""
        self._drafter.reset(sequence)

    def heard(self, sequence: Sequence) -> int:
        """The other's."""
        return self._drafter.heard(sequence)


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
