"""Drafts that are right for a seeded number of tokens, so that windows have every outcome."""

from __future__ import annotations

import numpy as np

from specrt.options import MAX_DRAFT
from specrt.speculative.speculator import Speculator
from specrt.state.messages import Draft, DraftContext, Kept
from specrt.state.sequence import Sequence

SCRIPTED = "scripted"
"""The name of mixed drafts without a speculator behind them."""


class MixedDrafts:
    """Drafts that are the true continuation for a seeded number of tokens, then another's.

    So windows are rejected, accepted in part and accepted whole by turns.

    Args:
        truth: the prompt and what plain decoding made of it.
        vocab_size: what the other one leaves open is drawn below it.
        seed: of the numbers and the draws.
        inner: proposes what is not the truth, None for random ids.

    Attributes:
        num_inner: ids in the drafts that ``inner`` proposed.
    """

    max_draft = MAX_DRAFT
    default_pmin = 0.0

    def __init__(
        self, truth: list[int], vocab_size: int, seed: int, inner: Speculator | None = None
    ) -> None:
        self.name = inner.name if inner else SCRIPTED
        self.taps = inner.taps if inner else frozenset()
        self.can_arm_after_prefix_reuse = inner is None or inner.can_arm_after_prefix_reuse
        self.wants_prompt = inner is None or inner.wants_prompt
        self.num_inner = 0
        self._truth, self._vocab_size, self._inner = truth, vocab_size, inner
        self._random = np.random.default_rng(seed)

    def propose(self, contexts: list[DraftContext]) -> list[Draft]:
        """One draft of the whole length per context."""
        return [
            Draft(self._mix(context, guesses), [], self.name)
            for context, guesses in zip(contexts, self._guesses(contexts), strict=True)
        ]

    def commit(self, kept: list[Kept]) -> None:
        """The other one hears of it."""
        if self._inner:
            self._inner.commit(kept)

    def reset(self, sequence: Sequence) -> None:
        """The other one hears of it."""
        if self._inner:
            self._inner.reset(sequence)

    def heard(self, sequence: Sequence) -> int:
        """What the other one has heard."""
        return self._inner.heard(sequence) if self._inner else sequence.cursor.num_tokens

    def _guesses(self, contexts: list[DraftContext]) -> list[list[int]]:
        inner = self._inner
        if inner is None:
            return [[] for _ in contexts]
        asked = [
            context._replace(num_draft=min(context.num_draft, inner.max_draft), pmin=0.0)
            for context in contexts
        ]
        return [draft.tokens for draft in inner.propose(asked)]

    def _mix(self, context: DraftContext, guesses: list[int]) -> list[int]:
        wanted, start = context.num_draft, context.sequence.cursor.num_tokens
        some = int(self._random.integers(0, wanted + 1))
        right = (0, some, wanted)[int(self._random.integers(3))]
        noise = self._random.integers(0, self._vocab_size, wanted).tolist()
        truth = self._truth[start : start + right]
        self.num_inner += max(0, min(len(guesses), wanted) - len(truth))
        guesses = (guesses + noise[len(guesses) :])[:wanted]
        return truth + guesses[len(truth) :]
