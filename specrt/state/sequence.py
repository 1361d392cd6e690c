"""A sequence: its ids, its text bytes, where it stands, and the pages it owns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from specrt.state.messages import FinishReason
from specrt.state.recurrent import MOST_KEPT


class Cursor(NamedTuple):
    """All that a step moves; a step assigns a new one at its very end, or nothing.

    A tuple, since every step makes two: a frozen dataclass takes three times as long.

    Args:
        num_tokens: ids in the history, the last of them not yet fed.
        cache_len: tokens that the target has consumed (``num_tokens - 1`` between steps).
        text_len: bytes of generated text.
        live: which of the two recurrent states is current.
        pending: logged rows that the next step applies to it first.
        finish_reason: why the sequence ended, None while it goes on.
    """

    num_tokens: int = 0
    cache_len: int = 0
    text_len: int = 0
    live: int = 0
    pending: int = 0
    finish_reason: FinishReason | None = None

    def fed(self, num_rows: int) -> Cursor:
        """Behind that many more rows, which a recurrent state has as pending if they were few."""
        num_tokens, cache_len, text_len, live, _, finish_reason = self
        pending = num_rows if num_rows <= MOST_KEPT else 0
        return Cursor(num_tokens, cache_len + num_rows, text_len, 1 - live, pending, finish_reason)

    def emitted(self, num_tokens: int, text_len: int, finish_reason: FinishReason | None) -> Cursor:
        """Behind that many more ids."""
        return Cursor(
            self.num_tokens + num_tokens,
            self.cache_len,
            text_len,
            self.live,
            self.pending,
            finish_reason,
        )


@dataclass(slots=True, eq=False, weakref_slot=True)
class Sequence:
    """One sequence of a target.

    ``history`` and ``text`` are buffers of which the cursor says how much counts: what an aborted
    step wrote past it is overwritten by the next.

    Args:
        slot: its number among the target's sequences; the KV pages belong to the slot.
        context: the most tokens it can hold.
        high_water: one past the highest position that was ever written, kept or not.
        lowest_kept: positions below it were never written to rings (a restored session).
        prompt_len: ids of the prompt, which text and output penalties leave out.
        drafter_states: what each speculator keeps for this sequence.
        closed: its slot may belong to another sequence.
    """

    slot: int
    context: int
    history: np.ndarray = field(init=False)
    text: bytearray = field(init=False)
    cursor: Cursor = field(default_factory=Cursor)
    high_water: int = 0
    lowest_kept: int = 0
    prompt_len: int = 0
    drafter_states: dict[Any, Any] = field(default_factory=dict)
    closed: bool = False

    def __post_init__(self) -> None:
        self.history = np.zeros(self.context + 1, np.int32)
        self.text = bytearray()

    @property
    def tokens(self) -> list[int]:
        """All ids up to and with the last token."""
        return self.history[: self.cursor.num_tokens].tolist()

    @property
    def last_token(self) -> int:
        """The id that the next step feeds first."""
        return int(self.history[self.cursor.num_tokens - 1])

    @property
    def num_generated(self) -> int:
        """Ids generated since the prompt."""
        return self.cursor.num_tokens - self.prompt_len
