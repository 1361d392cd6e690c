"""A sequence whose rows a draft head follows, hop by hop."""

from __future__ import annotations

from specrt import SpecOptions
from specrt.state.messages import DraftContext, Window


class Following:
    """A sequence whose rows a head follows, hop by hop."""

    def __init__(self, llm, algorithm="draft-head"):
        self.target = llm.target
        (speculator,) = llm.speculation.resolve(SpecOptions(type=algorithm)).speculators
        self.speculator = speculator
        self.sequence = self.target.open_sequence()

    def prefill(self, tokens, last_token):
        sequence = self.sequence
        start = sequence.cursor.cache_len
        sequence.history[start : start + len(tokens) + 1] = [*tokens, last_token]
        sequence.cursor = sequence.cursor._replace(num_tokens=start + len(tokens) + 1)
        for kept in self.target.prefill(sequence, tokens, self.speculator.taps):
            self.speculator.commit([kept])

    def draft(self, num_draft, pmin=0.0):
        (draft,) = self.speculator.propose([DraftContext(self.sequence, num_draft, pmin)])
        return draft

    def verify(self, draft_tokens):
        """The target's ids of all rows."""
        sequence = self.sequence
        window = Window(sequence, [sequence.last_token, *draft_tokens], sequence.cursor.cache_len)
        verification = self.target.verify([window], taps=self.speculator.taps)
        return window, self.target.ops.to_host(verification.ids).tolist()

    def keep(self, window, num_kept, next_token):
        """Commit, roll back and move the cursor behind the kept rows."""
        sequence, start = self.sequence, window.start_pos
        end = start + num_kept
        sequence.history[start : end + 1] = [*window.tokens[:num_kept], next_token]
        for kept in self.target.kept_rows(sequence, start, end, self.speculator.taps):
            self.speculator.commit([kept])
        cursor = self.target.rollback(sequence, num_kept)
        sequence.cursor = cursor._replace(num_tokens=end + 1)
