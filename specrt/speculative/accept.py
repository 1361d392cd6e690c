"""Accept: which emitted tokens a verified window gives, cut where the sequence ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from specrt.gguf.detokenizer import find_stop
from specrt.state.messages import Acceptance, FinishReason, TokenLogprob
from specrt.state.sequence import Sequence


class Drawer(Protocol):
    """Draws the token that row ``row`` of a window decides."""

    def token(self, row: int, position: int) -> int:
        """The id at ``position``; the history before it is in place."""

    def logprob(self, row: int, token: int) -> TokenLogprob | None:
        """Its log probability, None if not asked for."""


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

    def append(
        self, sequence: Sequence, token: int, num_tokens: int, text_len: int
    ) -> tuple[int, FinishReason | None]:
        """Add an emitted id's bytes behind ``text_len``; the new length, and why it ended here.

        Args:
            num_tokens: ids of the sequence with this one.
            text_len: bytes of the text before it.
        """
        if token in self.end_ids:
            return text_len, "stop"
        del sequence.text[text_len:]
        sequence.text += self.token_bytes(token)
        if self.stops and num_tokens >= self.min_total:
            stop = find_stop(sequence.text, text_len, self.stops)
            if stop is not None:
                return stop, "stop"
        return len(sequence.text), "length" if num_tokens >= self.max_total else None


def accept(
    sequence: Sequence, draft_tokens: list[int], drawer: Drawer, boundary: Boundary
) -> Acceptance:
    """Draw row by row, and go on while the drawn token is the draft's.

    What is written to the sequence's history and text lies behind its cursor, so it does not count
    until the step assigns a new cursor.

    Args:
        draft_tokens: d1 .. dK of the verified window.
        drawer: draws from the window's rows 0 .. K.
    """
    position = sequence.cursor.num_tokens
    text_len = sequence.cursor.text_len
    tokens: list[int] = []
    logprobs: list[TokenLogprob] = []
    finish_reason: FinishReason | None = None
    for row, guess in enumerate([*draft_tokens, None]):
        token = drawer.token(row, position)
        sequence.history[position] = token
        position += 1
        tokens.append(token)
        logprob = drawer.logprob(row, token)
        if logprob is not None:
            logprobs.append(logprob)
        text_len, finish_reason = boundary.append(sequence, token, position, text_len)
        if finish_reason is not None or token != guess:
            break
    return Acceptance(tokens, logprobs, finish_reason, text_len)
