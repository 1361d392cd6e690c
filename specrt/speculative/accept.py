"""Accept: which emitted tokens a verified window gives, cut where the sequence ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from specrt.gguf.detokenizer import find_stop
from specrt.state.messages import Acceptance, FinishReason, TokenLogprob
from specrt.state.sequence import Sequence


class Drawer(Protocol):
    """Draws the tokens that a verified window decides."""

    def run(self) -> list[int]:
        """Row by row, up to the first that is not the draft's."""

    def logprobs(self, tokens: list[int]) -> list[TokenLogprob]:
        """Of the run's first tokens; none if they are not asked for."""


@dataclass(frozen=True, slots=True)
class Boundary:
    """Where a sequence ends.

    Args:
        end_ids: ids that end it.
        stops: UTF-8 of the strings that end it.
        min_total: ids, prompt included, before which nothing but a full sequence ends it.
        max_total: ids, prompt included, at which it is full.
        token_bytes: what an id adds to the text.
    """

    end_ids: frozenset[int]
    stops: tuple[bytes, ...]
    min_total: int
    max_total: int
    token_bytes: Callable[[int], bytes]

    def take(
        self, sequence: Sequence, run: list[int]
    ) -> tuple[list[int], int, FinishReason | None]:
        """Write a run behind the cursor, up to where it ends the sequence.

        Returns:
            What was taken, the bytes of the text with it, and why the sequence ends there.
        """
        end_ids, stops, token_bytes = self.end_ids, self.stops, self.token_bytes
        history, text, position = sequence.history, sequence.text, sequence.cursor.num_tokens
        del text[sequence.cursor.text_len :]
        tokens: list[int] = []
        for token in run:
            history[position] = token
            position += 1
            tokens.append(token)
            if token in end_ids:
                return tokens, len(text), "stop"
            searched = len(text)
            text += token_bytes(token)
            if stops and position >= self.min_total:
                stop = find_stop(text, searched, stops)
                if stop is not None:
                    return tokens, stop, "stop"
            if position >= self.max_total:
                return tokens, len(text), "length"
        return tokens, len(text), None


def accept(sequence: Sequence, drawer: Drawer, boundary: Boundary) -> Acceptance:
    """Take the drawn tokens, up to where the sequence ends.

    What is written to the sequence's history and text lies behind its cursor, so it does not count
    until the step assigns a new cursor.
    """
    tokens, text_len, finish_reason = boundary.take(sequence, drawer.run())
    return Acceptance(tokens, drawer.logprobs(tokens), finish_reason, text_len)
