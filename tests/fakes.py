"""Speculators that tests script."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

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


class Oracle:
    """A script: the true continuation for a seeded number of rows, then something else.

    Args:
        truths: whole sequences, prompt included; the one that starts with the prompt counts.
        vocab_size: other ids are drawn below it.
        inner: proposes the other ids, None for random ones.
    """

    def __init__(
        self,
        truths: list[list[int]],
        vocab_size: int,
        seed: int = 0,
        inner: Callable[[DraftContext], list[int]] | None = None,
    ) -> None:
        self.truths = truths
        self.vocab_size = vocab_size
        self.random = np.random.default_rng(seed)
        self.inner = inner

    def __call__(self, context: DraftContext) -> list[int]:
        wanted = context.num_draft
        right = int(self.random.choice([0, wanted, self.random.integers(0, wanted + 1)]))
        guesses = self.inner(context) if self.inner else []
        noise = self.random.integers(0, self.vocab_size, wanted).tolist()
        guesses = (guesses + noise[len(guesses) :])[:wanted]
        truth = self._truth(context.sequence)[:right]
        return truth + guesses[len(truth) :]

    def _truth(self, sequence: Sequence) -> list[int]:
        so_far = sequence.tokens
        for truth in self.truths:
            if truth[: len(so_far)] == so_far:
                return truth[len(so_far) :]
        return []
