"""Layer 3: the adapter over trained drafter weights."""

from __future__ import annotations

from typing import Literal, Protocol

import numpy as np

from specrt.state.messages import Draft, DraftContext, Kept, Tap
from specrt.state.sequence import Sequence


class FollowingHead(Protocol):
    """What all learned drafters have in common: each is bound to one target, and follows its rows.

    Args:
        block_size: the rows of a block (1 for per-token heads).
        taps: the target rows that it consumes.
    """

    block_size: int
    taps: frozenset[Tap]

    def catch_up(self, rows: list[Kept]) -> None:
        """Follow kept rows, now or with the first row of the next draft, which is one call then.

        Their taps are the target's own buffers. What it does not consume now it copies, or reads
        later where a ``Decoder`` keeps it for a while (``models/tap_rows.py``). Rows of a position
        that it has consumed change nothing.
        """

    def reset(self, sequence: Sequence) -> None:
        """Follow the sequence back; called on whoever keeps something in ``drafter_states``."""

    def heard(self, sequence: Sequence) -> int:
        """How many leading positions it can draft behind, as of a ``Speculator``."""

    def export_state(self, sequence: Sequence) -> dict[str, np.ndarray]:
        """What it has of a sequence up to its cursor, by name, as ``import_state`` takes it."""

    def import_state(self, sequence: Sequence, arrays: dict[str, np.ndarray]) -> None:
        """Take what was exported behind as many consumed tokens.

        Raises:
            MismatchError: an array is missing or has another shape.
        """


class PerTokenHead(FollowingHead, Protocol):
    """One token a pass, each from the hidden row of the one before."""

    kind: Literal["per_token"]

    def draft_chain(self, contexts: list[DraftContext]) -> list[Draft]:
        """One draft per context, token by token.

        Each ends at its own context's ``num_draft``, and before the first token that is less likely
        than its ``pmin``, in which the algorithm has put its default for None.
        """


class BlockHead(FollowingHead, Protocol):
    """A whole block a pass.

    Args:
        num_drafting: the rows of a block that draft.
    """

    kind: Literal["block"]
    num_drafting: int

    def draft_block(self, contexts: list[DraftContext]) -> list[Draft]:
        """One draft per context, each from one whole block, up to its ``num_draft``.

        A block is never computed shorter, since its rows see each other. The algorithm cuts by
        ``pmin``.
        """


DraftHead = PerTokenHead | BlockHead
