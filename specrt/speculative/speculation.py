"""From speculation options to who drafts, with which gate and under which policy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from specrt.speculative.request import Policy
from specrt.speculative.speculator import Speculator
from specrt.state.messages import Declined

DEFAULT_NUM_DRAFT = 8


@dataclass(frozen=True, slots=True)
class Resolved:
    """Options with nothing left open.

    Args:
        speculator: who drafts, None for plain decoding.
        declined: who could not serve, and why.
        num_draft: the most tokens of a draft.
        pmin: the gate.
        policy: makes a request's policy.
    """

    speculator: Speculator | None
    declined: list[Declined]
    num_draft: int
    pmin: float
    policy: Callable[[], Policy]
