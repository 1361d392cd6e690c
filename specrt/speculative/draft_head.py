"""Layer 3: the adapter over trained drafter weights."""

from __future__ import annotations

from typing import Literal, Protocol

from specrt.state.messages import Draft, DraftContext, Kept, Tap


class DraftHead(Protocol):
    """A learned drafter's forward, bound to one target.

    Args:
        kind: one token per call, or a whole block per call.
        block_size: the rows of a block (1 for per-token heads).
        taps: the target rows that it consumes.
    """

    kind: Literal["per_token", "block"]
    block_size: int
    taps: frozenset[Tap]

    def catch_up(self, rows: list[Kept]) -> None:
        """Consume kept rows, and make the first draft step behind them in the same call.

        Their taps are the target's own buffers, valid during the call only: what it does not
        consume now it must copy. Rows of a position that it has consumed change nothing.
        """

    def draft_chain(self, contexts: list[DraftContext]) -> list[Draft]:
        """One draft per context, token by token, for heads of kind "per_token".

        Each ends at its own context's ``num_draft``, and before the first token that is less likely
        than its ``pmin``, in which the algorithm has put its default for None.
        """

    def draft_block(self, contexts: list[DraftContext]) -> list[Draft]:
        """One draft per context, each from one whole block, for heads of kind "block".

        Each is cut as in ``draft_chain``; a block is never computed shorter, since its rows see
        each other.
        """
