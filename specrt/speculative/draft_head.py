"""Layer 3: the adapter over trained drafter weights."""

from __future__ import annotations

from typing import Any, Literal, Protocol

from specrt.state.messages import Draft, Kept, Tap


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

    def catch_up(self, rows: list[Kept]) -> Any:
        """Consume kept rows, and make the first draft step in the same call."""

    def draft_chain(self, num_draft: int, pmin: float) -> list[Draft]:
        """Draft token by token up to ``num_draft`` or the gate."""

    def draft_block(self, pmin: float) -> list[Draft]:
        """Draft one whole block, cut by the gate."""
