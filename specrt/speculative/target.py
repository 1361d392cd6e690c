"""Layer 1: the model whose distribution is emitted. It knows nothing of drafting."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Protocol

import numpy as np

from specrt.state.messages import Kept, Tap, Verification, Window
from specrt.state.sequence import Cursor, Sequence


class Target(Protocol):
    """A forward over flat rows, with a logits row and the requested taps per row.

    Attributes:
        max_draw_ids: the most ids that bias and suppression may name in a window's draw; None for a
            target that draws none.
    """

    vocab_size: int
    context: int
    max_sequences: int
    preferred_num_draft: int | None
    taps: frozenset[Tap]
    max_draw_ids: int | None

    def open_sequence(self) -> Sequence:
        """A new, empty sequence in a free slot.

        Raises:
            ContextError: all slots are in use.
        """

    def close_sequence(self, sequence: Sequence) -> None:
        """Give its slot back."""

    def prefill(
        self, sequence: Sequence, tokens: list[int], taps: Collection[Tap] = ()
    ) -> Iterator[Kept]:
        """Feed ``tokens`` at ``cache_len``, chunk by chunk.

        Asking for what follows a chunk, be it the end, moves the cursor past it: a caller that
        fails over a chunk finds the cursor before it, and can feed it again.
        """

    def prepare(
        self, windows: list[Window], *, taps: Collection[Tap] = (), logits: bool = False
    ) -> None:
        """Make what this verify needs, so that its time is that of a step."""

    def verify(
        self, windows: list[Window], *, taps: Collection[Tap] = (), logits: bool = False
    ) -> Verification:
        """Forward all windows in one call; no cursor moves."""

    def kept_rows(
        self, sequence: Sequence, start: int, end: int, taps: Collection[Tap]
    ) -> Iterator[Kept]:
        """Rows start .. end - 1 of the steps since the prompt, with taps that each was asked for.

        They are among the newest 320 that were verified, kept or not; a head may read them longer
        where the target keeps them (``Decoder.tap_rows``).
        """

    def rollback(self, sequence: Sequence, num_kept: int) -> Cursor:
        """The cursor after the last verify if its first ``num_kept`` rows are kept."""

    def rewind(self, sequence: Sequence, num_tokens: int) -> int:
        """Go back to ``num_tokens`` consumed tokens, or as near below as the state allows."""

    @property
    def numerics(self) -> str:
        """Names everything that decides the bits of a saved state, apart from the model."""

    def export_state(self, sequence: Sequence) -> dict[str, np.ndarray]:
        """What the target has of a sequence, by name, as ``import_state`` takes it."""

    def import_state(
        self, sequence: Sequence, cache_len: int, arrays: dict[str, np.ndarray]
    ) -> None:
        """Take what a target of equal ``numerics`` exported after ``cache_len`` consumed tokens.

        Raises:
            MismatchError: an array is missing or has another shape.
        """
